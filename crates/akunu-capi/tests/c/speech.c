/* Speech:
 *
 *     speech MODEL                any model of speech, with sound made here
 *     speech MODEL RECORDING      Whisper tiny, and Kennedy's sentence about your country */
#include "check.h"
#include <math.h>
#include <string.h>

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

/* What holds for every model. */
static void make_sounds(akunu_transcriber *transcriber) {
    static float tone[16000], silence[16000];
    for (size_t i = 0; i < 16000; i++) {
        tone[i] = 0.3F * sinf(0.17F * (float)i);
    }
    size_t length = 0;
    char text[4096];
    CHECK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_TEXT, NULL, 0, &length) == AKUNU_USAGE);
    akunu_transcribe_options options = {.size = sizeof options, .beams = 1};
    akunu_transcribe_statistics statistics = {.size = sizeof statistics};
    OK(akunu_transcribe_pcm(transcriber, tone, 16000, &options, NULL, NULL, &statistics));
    CHECK(statistics.audio_seconds > 0.9 && statistics.audio_seconds < 1.1);
    for (unsigned format = AKUNU_FORMAT_TEXT; format <= AKUNU_FORMAT_JSON; format++) {
        OK(akunu_transcriber_text(transcriber, format, text, sizeof text, &length));
        CHECK(strlen(text) == length);
    }
    CHECK(akunu_transcriber_text(transcriber, 77, text, sizeof text, &length) == AKUNU_USAGE);
    OK(akunu_transcribe_pcm(transcriber, silence, 16000, &options, NULL, NULL, NULL));
    CHECK(akunu_transcribe_pcm(transcriber, NULL, 16000, &options, NULL, NULL, NULL) == AKUNU_USAGE);
    CHECK(akunu_transcribe(transcriber, "no/such/file.wav", &options, NULL, NULL, NULL) == AKUNU_NOT_FOUND);
    options.language = "Klingon";
    CHECK(akunu_transcribe_pcm(transcriber, tone, 16000, &options, NULL, NULL, NULL) == AKUNU_USAGE);
    options.language = NULL;
    float temperatures[] = {0.0F, 3.0F};
    options.temperatures = temperatures;
    options.temperature_count = 2;
    CHECK(akunu_transcribe_pcm(transcriber, tone, 16000, &options, NULL, NULL, NULL) == AKUNU_USAGE);
    options.temperature_count = 1;
    options.no_context = options.carry_prompt = true;
    options.compression_ratio = options.no_speech = INFINITY;
    options.log_probability = -INFINITY;
    OK(akunu_transcribe_pcm(transcriber, tone, 16000, &options, NULL, NULL, NULL));
    options.patience = 1000;
    CHECK(akunu_transcribe_pcm(transcriber, tone, 16000, &options, NULL, NULL, NULL) == AKUNU_USAGE);
}

/* What Whisper tiny hears. */
static void hear_kennedy(akunu_transcriber *transcriber, const char *recording) {
    akunu_transcriber_info info = {.size = sizeof info};
    OK(akunu_transcriber_get_info(transcriber, &info));
    CHECK(info.multilingual && info.mels == 80 && info.vocabulary == 51865);
    CHECK(info.encoder_layers == 4 && info.encoder_heads == 6 && info.encoder_hidden == 384);
    CHECK(info.encoder_feed_forward == 1536 && info.encoder_context == 1500);
    CHECK(info.decoder_layers == 4 && info.decoder_heads == 6 && info.decoder_hidden == 384);
    CHECK(info.decoder_feed_forward == 1536 && info.decoder_context == 448 && info.beams == 1);
    akunu_transcribe_options options = {.size = sizeof options, .beams = 1};
    akunu_transcribe_statistics statistics = {.size = sizeof statistics};
    struct heard heard = {transcriber, recording, 0, true};
    OK(akunu_transcribe(transcriber, recording, &options, hear, &heard, &statistics));
    CHECK(heard.segments > 0 && strcmp(statistics.language, "en") == 0 && statistics.audio_seconds > 10);
    CHECK(statistics.encode_seconds > 0 && statistics.decode_seconds > 0);

    size_t length = 0;
    CHECK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_TEXT, NULL, 0, &length) == AKUNU_SHORT_BUFFER);
    char *text = malloc(length + 1);
    OK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_TEXT, text, length + 1, &length));
    CHECK(strstr(text, "what your country can do for you") != NULL);
    free(text);
    char subtitles[2048];
    OK(akunu_transcriber_text(transcriber, AKUNU_FORMAT_SRT, subtitles, sizeof subtitles, &length));
    CHECK(strstr(subtitles, "-->") != NULL);

    heard.go_on = false;
    akunu_status stopped = akunu_transcribe(transcriber, recording, &options, hear, &heard, NULL);
    CHECK(stopped == AKUNU_STOPPED || stopped == AKUNU_OK);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: speech MODEL [RECORDING]\n");
        return 2;
    }
    akunu_transcriber *transcriber = NULL;
    akunu_transcriber_options load = {.size = sizeof load, .beams = 1, .threads = argc == 2};
    OK(akunu_transcriber_load(argv[1], &load, &transcriber));
    make_sounds(transcriber);
    if (argc == 3) {
        hear_kennedy(transcriber, argv[2]);
    }
    OK(akunu_transcriber_free(transcriber));
    CHECK(akunu_transcriber_stop(transcriber) == AKUNU_BAD_HANDLE);
    puts("speech in C: ok");
    return 0;
}
