/* Speech, with a real model:
 *
 *     speech MODEL RECORDING      Whisper tiny, and Kennedy's sentence about your country */
#include <akunu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, int line) {
    const char *message = akunu_error_message();
    fprintf(stderr, "speech.c:%d: %s (last error: %s)\n", line, what, message ? message : "none");
    exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))
#define OK(call) CHECK((call) == AKUNU_OK)

struct heard {
    akunu_transcriber *transcriber;
    const char *recording;
    size_t segments;
    bool go_on;
};

static bool hear(void *user, const akunu_segment *segment) {
    struct heard *heard = user;
    CHECK(segment->end >= segment->start && strlen(segment->text) > 0);
    akunu_status again = akunu_transcribe(heard->transcriber, heard->recording, NULL, NULL, NULL, NULL);
    CHECK(again == AKUNU_IN_USE);
    heard->segments++;
    return heard->go_on;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: speech MODEL RECORDING\n");
        return 2;
    }
    akunu_transcriber *transcriber = NULL;
    akunu_transcriber_options load = {.size = sizeof load, .beams = 1};
    OK(akunu_transcriber_load(argv[1], &load, &transcriber));
    bool multilingual = false;
    OK(akunu_transcriber_multilingual(transcriber, &multilingual));
    CHECK(multilingual);

    size_t length = 0;
    CHECK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_TEXT, NULL, 0, &length) == AKUNU_USAGE);
    akunu_transcribe_options options = {.size = sizeof options, .beams = 1};
    akunu_transcribe_statistics statistics = {.size = sizeof statistics};
    struct heard heard = {transcriber, argv[2], 0, true};
    OK(akunu_transcribe(transcriber, argv[2], &options, hear, &heard, &statistics));
    CHECK(heard.segments > 0 && strcmp(statistics.language, "en") == 0 && statistics.audio_seconds > 10);

    CHECK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_TEXT, NULL, 0, &length) == AKUNU_SHORT_BUFFER);
    char *text = malloc(length + 1);
    OK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_TEXT, text, length + 1, &length));
    CHECK(strstr(text, "what your country can do for you") != NULL);
    free(text);
    char subtitles[2048];
    OK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_SRT, subtitles, sizeof subtitles, &length));
    CHECK(strstr(subtitles, "-->") != NULL);
    CHECK(akunu_transcriber_text(transcriber, 77, subtitles, sizeof subtitles, &length) == AKUNU_USAGE);

    heard.go_on = false;
    akunu_status stopped = akunu_transcribe(transcriber, argv[2], &options, hear, &heard, NULL);
    CHECK(stopped == AKUNU_STOPPED || stopped == AKUNU_OK);
    CHECK(akunu_transcribe(transcriber, "no/such/file.wav", &options, NULL, NULL, NULL) == AKUNU_NOT_FOUND);
    float silence[16000] = {0};
    OK(akunu_transcribe_pcm(transcriber, silence, 16000, &options, NULL, NULL, &statistics));
    CHECK(statistics.audio_seconds > 0.9 && statistics.audio_seconds < 1.1);
    options.language = "Klingon";
    CHECK(akunu_transcribe(transcriber, argv[2], &options, NULL, NULL, NULL) == AKUNU_USAGE);
    OK(akunu_transcriber_free(transcriber));
    CHECK(akunu_transcriber_stop(transcriber) == AKUNU_BAD_HANDLE);
    puts("speech in C: ok");
    return 0;
}
