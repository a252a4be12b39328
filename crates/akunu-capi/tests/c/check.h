/* What the test programs check with: they end where something does not hold. */
#include <akunu.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what, const char *file, int line) {
    const char *message = akunu_error_message();
    fprintf(stderr, "%s:%d: %s (last error: %s)\n", file, line, what, message ? message : "none");
    exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __FILE__, __LINE__))
#define OK(call) CHECK((call) == AKUNU_OK)
