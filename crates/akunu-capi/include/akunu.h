/* akunu: run language models in your own program.
 *
 *     akunu_model *model;
 *     akunu_sequence *sequence;
 *     akunu_piece piece;
 *     akunu_generate_options options = {.size = sizeof options, .max_tokens = 64};
 *     if (akunu_model_load("model.gguf", NULL, &model) || akunu_sequence_create(model, &sequence) ||
 *         akunu_generate_begin_text(sequence, "Once upon a time", &options))
 *         fprintf(stderr, "%s\n", akunu_error_message());
 *     while (akunu_generate_next(sequence, &piece) == AKUNU_OK)
 *         fputs(piece.text, stdout);
 *     akunu_sequence_free(sequence);
 *     akunu_model_free(model);
 *
 * Status.   Functions return AKUNU_OK, which is 0, or what went wrong; akunu_error_message() says more. No function
 *           exits, throws or unwinds.
 * Handles.  What a function creates, another of the same name frees. A handle is never given out again: one that is
 *           null, was freed or is of another kind gives AKUNU_BAD_HANDLE. Whatever was made from an object lives on
 *           when that is freed.
 * Buffers.  Whatever has no fixed size is copied into a buffer of the caller's: (buffer, capacity, &length). The length
 *           is always set; where the capacity is too small nothing else is (AKUNU_SHORT_BUFFER), so ask with a null
 *           buffer of capacity 0 how much is needed. Text is UTF-8 and ends with a zero that lengths do not count.
 * Structs.  Set size to sizeof the struct and leave the rest zero: zero is every field's default.
 * Threads.  Models, constraints, schedulers and embedders may be shared. A sequence and a transcriber do one thing at a time,
 *           which is checked (AKUNU_IN_USE); akunu_sequence_stop and akunu_transcriber_stop are for every thread.
 *
 * Written by cbindgen from crates/akunu-capi: change it there. */


#ifndef AKUNU_H
#define AKUNU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Any JSON object; the source is null.
#define AKUNU_JSON_OBJECT 1

// Instances of a JSON Schema.
#define AKUNU_JSON_SCHEMA 2

// Matches of a regular expression, from beginning to end.
#define AKUNU_REGEX 3

// Sentences of a grammar in llama.cpp's notation, GBNF.
#define AKUNU_GBNF 4

// Sentences of a grammar in llguidance's variant of Lark.
#define AKUNU_LARK 5

// As the model's makers say, otherwise the mean.
#define AKUNU_POOLING_DEFAULT 0

// The first token's state.
#define AKUNU_POOLING_CLS 1

// The mean of all tokens' states.
#define AKUNU_POOLING_MEAN 2

// The last token's state.
#define AKUNU_POOLING_LAST 3

// Vectors keep their length instead of being scaled to 1.
#define AKUNU_EMBED_RAW 1

// Texts that are too long are cut instead of refused.
#define AKUNU_EMBED_CUT 2

// The generation goes on.
#define AKUNU_UNFINISHED 0

// The model said that it is done, or nothing may follow.
#define AKUNU_END 1

// A stop string came.
#define AKUNU_STOP_STRING 2

// As many tokens as were asked for, or as the context holds.
#define AKUNU_LENGTH 3

// Someone stopped it.
#define AKUNU_CANCELLED 4

// Keys and values in half precision.
#define AKUNU_KV_F16 0

// Keys and values in 8 bits: half the memory.
#define AKUNU_KV_Q8_0 1

// One line for each segment.
#define AKUNU_FORMAT_TEXT 0

// Subtitles as SubRip has them.
#define AKUNU_FORMAT_SRT 1

// Subtitles as WebVTT has them.
#define AKUNU_FORMAT_VTT 2

// All there is to know, as JSON.
#define AKUNU_FORMAT_JSON 3

// Names of special tokens in the text are these tokens. For text the program wrote, not its users.
#define AKUNU_PARSE_SPECIAL 1

// Adds what the model expects around a text, such as its beginning-of-sequence token.
#define AKUNU_ADD_SPECIAL 2

// The number of this header's binary interface. It changes when programs must be compiled again.
#define AKUNU_ABI_VERSION 1

// What became of a call.
typedef enum {
    // Done.
    AKUNU_OK = 0,
    // The generation is over: there is no further piece. Not an error.
    AKUNU_DONE = 1,
    // The buffer is too small; nothing was written but the length that is needed.
    AKUNU_SHORT_BUFFER = 2,
    // The object is in use, on another thread or further up in this one.
    AKUNU_IN_USE = 3,
    // The handle is null, was freed, or belongs to another kind of object.
    AKUNU_BAD_HANDLE = 4,
    // The arguments make no sense.
    AKUNU_USAGE = 5,
    // There is no such model, file or tensor.
    AKUNU_NOT_FOUND = 6,
    // A file does not follow its format.
    AKUNU_BAD_DATA = 7,
    // Well formed, but nothing akunu can do.
    AKUNU_UNSUPPORTED = 8,
    // The system or a server said no.
    AKUNU_DENIED = 9,
    // Something is full or busy; trying again may help.
    AKUNU_UNAVAILABLE = 10,
    // The operating system failed.
    AKUNU_SYSTEM = 11,
    // Somebody asked to stop.
    AKUNU_STOPPED = 12,
    // A mistake in akunu. The objects of the call should be freed.
    AKUNU_INTERNAL = 13,
} akunu_status;

// What a text must be like. Threads may share it, and so may models.
typedef struct akunu_constraint akunu_constraint;

// A model that is ready to embed. Threads may share it.
typedef struct akunu_embedder akunu_embedder;

// A model that is ready to run. Threads may share it.
typedef struct akunu_model akunu_model;

// Serves many requests with one model. Threads may share it: what they ask for runs together.
typedef struct akunu_scheduler akunu_scheduler;

// A sequence of tokens and its place in the cache of a model: one conversation, say. One thread at a time may use it; others
// get AKUNU_IN_USE. akunu_sequence_stop alone may be called by anyone.
typedef struct akunu_sequence akunu_sequence;

// A speech model that is ready to listen. It listens to one recording at a time: other threads, and callbacks, get
// AKUNU_IN_USE.
typedef struct akunu_transcriber akunu_transcriber;

// A number added to one token's logit.
typedef struct {
    // The token.
    uint32_t token;
    // Minus infinity forbids it.
    float bias;
} akunu_bias;

// How tokens are chosen. Zero is the default of every field but the size, and means the likeliest token every time.
typedef struct {
    // sizeof(akunu_sampling).
    size_t size;
    // 0 always takes the likeliest token.
    float temperature;
    // Keeps this many of the likeliest; 0 keeps all.
    uint32_t top_k;
    // Keeps this share of the probability; 0 or 1 keeps all.
    float top_p;
    // Keeps what has this share of the best one's probability; 0 keeps all.
    float min_p;
    // Divides the logits of tokens that came lately; 0 or 1 leaves them.
    float repeat_penalty;
    // Subtracted from them for each time they came.
    float frequency_penalty;
    // Subtracted from them once.
    float presence_penalty;
    // How many tokens are lately; 0 for 64.
    uint32_t repeat_last_n;
    // Where chance comes from: the same seed gives the same text.
    uint64_t seed;
    // Added to single tokens' logits: bias_count of them.
    const akunu_bias *biases;
    // How many.
    size_t bias_count;
} akunu_sampling;

// How text is generated. Zero is the default of every field but the size.
typedef struct {
    // sizeof(akunu_generate_options).
    size_t size;
    // How tokens are chosen; null for the likeliest.
    const akunu_sampling *sampling;
    // Most tokens; 0 until the model or the context ends.
    size_t max_tokens;
    // Texts that end the generation and are not part of it: stop_count of them.
    const char *const *stop;
    // How many.
    size_t stop_count;
    // What the text must be like; null for anything. It may be freed once the generation has begun.
    const akunu_constraint *constraint;
    // Whether the prompt goes on from what the sequence holds, instead of replacing it.
    bool append;
    // Whether coming tokens are guessed and verified together: faster, never different.
    bool speculate;
    // Whether the oldest tokens are dropped when the context is full, instead of ending there.
    bool context_shift;
} akunu_generate_options;

// What a generation took.
typedef struct {
    // sizeof(akunu_statistics), set by the caller.
    size_t size;
    // Why it ended: AKUNU_UNFINISHED, AKUNU_END, ...
    uint32_t finish;
    // Which stop string came.
    uint32_t stop_index;
    // Tokens of the prompt.
    uint64_t prompt_tokens;
    // Of those, how many the sequence held already.
    uint64_t cached_tokens;
    // Tokens generated, those of a stop string included, the end token not.
    uint64_t generated_tokens;
    // Tokens guessed by speculation, and how many were right.
    uint64_t guessed_tokens;
    // Of those, how many were right.
    uint64_t right_guesses;
    // Time the prompt took.
    double prefill_seconds;
    // Time all tokens after the first took.
    double decode_seconds;
    // Prompt tokens per second, without those the sequence held.
    double prefill_rate;
    // Generated tokens per second, without the first.
    double decode_rate;
} akunu_statistics;

// A prompt and what is wanted of it.
typedef struct {
    // The tokens to continue: prompt_count of them.
    const uint32_t *prompt;
    // How many.
    size_t prompt_count;
    // How; may be null. append and speculate are not for this.
    const akunu_generate_options *options;
    // Where to put what it took; may be null.
    akunu_statistics *statistics;
} akunu_request;

// A piece of generated text. It belongs to the library.
typedef struct {
    // Whole characters, perhaps none; a zero follows that text_length does not count.
    const char *text;
    // Bytes of the text.
    size_t text_length;
    // The tokens that the text so far completes.
    const uint32_t *tokens;
    // How many.
    size_t token_count;
} akunu_piece;

// Hears each piece of request number `index`; false ends that request. It must not throw. The piece is gone when it returns.
typedef bool (*akunu_batch_callback)(void *user, size_t index, const akunu_piece *piece);

// How an embedder is loaded. Zero is the default of every field but the size.
typedef struct {
    // sizeof(akunu_embedder_options).
    size_t size;
    // "cpu", "cuda", "metal", "reference"; null for akunu's choice.
    const char *backend;
    // Threads; 0 for all cores.
    size_t threads;
    // Most tokens of a text; 0 for what the model's makers say, at most 4096.
    size_t context;
    // Most tokens fed at once; 0 for 512.
    size_t batch;
    // How states become one vector: one of AKUNU_POOLING_*.
    uint32_t pooling;
} akunu_embedder_options;

// One message of a conversation.
typedef struct {
    // "system", "user", "assistant", or another the model's template knows.
    const char *role;
    // What was said.
    const char *content;
} akunu_message;

// Hears each piece while text is generated; false ends the generation. It must not throw. The piece is gone when it returns.
typedef bool (*akunu_piece_callback)(void *user, const akunu_piece *piece);

// How a model is loaded. Zero is the default of every field but the size.
typedef struct {
    // sizeof(akunu_load_options).
    size_t size;
    // "cpu", "cuda", "metal", "reference"; null for akunu's choice.
    const char *backend;
    // Positions of one sequence; 0 for the model's own, at most 4096.
    size_t context;
    // Threads; 0 for all cores.
    size_t threads;
    // Sequences that can exist at the same time; 0 for one.
    size_t sequences;
    // Most tokens fed at once; 0 for 512.
    size_t batch;
    // Most rows of logits computed at once; 0 for 16.
    size_t outputs;
    // How keys and values are kept: one of AKUNU_KV_*.
    uint32_t kv;
} akunu_load_options;

// What a model is made of. Where layers differ, the largest value stands; 0 where the file does not say.
typedef struct {
    // sizeof(akunu_model_info), set by the caller.
    size_t size;
    // The family, such as "llama"; ends with a zero.
    char architecture[32];
    // The backend that runs it, such as "cpu"; ends with a zero.
    char backend[16];
    // Elements of all tensors together.
    uint64_t parameters;
    // Bytes that weights, caches of all sequences and scratch take.
    uint64_t memory;
    // Positions of one sequence, as it was loaded.
    uint64_t context;
    // Positions it was made for.
    uint64_t trained_context;
    // Sequences that can exist at the same time, as it was loaded.
    uint64_t sequences;
    // Tokens it can choose from.
    uint64_t vocabulary;
    // Width of the residual stream.
    uint64_t hidden;
    // Layers.
    uint64_t layers;
    // Query heads.
    uint64_t heads;
    // Key and value heads.
    uint64_t kv_heads;
    // Elements of a head.
    uint64_t head_dim;
    // Width inside the feed-forward network.
    uint64_t feed_forward;
    // Positions that layers with a sliding window see; 0 where none has one.
    uint64_t sliding_window;
    // The base of the rotations; that of layers without a window, where there are two.
    double rope_theta;
    // The base of layers with a window, where it is another.
    double rope_local_theta;
    // The epsilon of its norms.
    double norm_eps;
} akunu_model_info;

// One tensor of a model's file.
typedef struct {
    // sizeof(akunu_tensor_info), set by the caller.
    size_t size;
    // The dtype as its format spells it, such as "Q4_K" or "BF16"; ends with a zero.
    char dtype[16];
    // Its bytes in the file.
    uint64_t bytes;
    // Dimensions in use.
    uint32_t rank;
    // Outermost first.
    uint64_t shape[4];
} akunu_tensor_info;

// One step of a model, over all runs since timing began.
typedef struct {
    // What it does and the first tensor it reads, such as "linear blk.0.attn_q.weight"; cut where it is longer, ends with a zero.
    char label[96];
    // Time of all runs together.
    double milliseconds;
    // How often it ran.
    uint64_t runs;
    // Bytes it had to read.
    uint64_t bytes;
    // Additions and multiplications of its products.
    uint64_t operations;
} akunu_step_time;

// How a transcriber is loaded. Zero is the default of every field but the size.
typedef struct {
    // sizeof(akunu_transcriber_options).
    size_t size;
    // "cpu", "cuda", "metal", "reference"; null for akunu's choice.
    const char *backend;
    // Threads; 0 for all cores.
    size_t threads;
    // Most hypotheses and samples at once; 0 for 5.
    size_t beams;
} akunu_transcriber_options;

// What a model of speech is made of.
typedef struct {
    // sizeof(akunu_transcriber_info), set by the caller.
    size_t size;
    // The backend that runs it, such as "cpu"; ends with a zero.
    char backend[16];
    // Most hypotheses and samples at once, as it was loaded.
    uint64_t beams;
    // Bands of a frame of sound.
    uint64_t mels;
    // Tokens it can choose from.
    uint64_t vocabulary;
    // States the encoder makes of 30 seconds.
    uint64_t encoder_context;
    // Layers of the encoder.
    uint64_t encoder_layers;
    // Heads of its layers.
    uint64_t encoder_heads;
    // Width of its residual stream.
    uint64_t encoder_hidden;
    // Width inside its feed-forward networks.
    uint64_t encoder_feed_forward;
    // Tokens of a window's text, those before it included.
    uint64_t decoder_context;
    // Layers of the decoder.
    uint64_t decoder_layers;
    // Heads of its layers.
    uint64_t decoder_heads;
    // Width of its residual stream.
    uint64_t decoder_hidden;
    // Width inside its feed-forward networks.
    uint64_t decoder_feed_forward;
    // Whether it knows languages other than English, and can translate them.
    bool multilingual;
} akunu_transcriber_info;

// What is wanted of a recording. Zero is the default of every field but the size.
typedef struct {
    // sizeof(akunu_transcribe_options).
    size_t size;
    // The language that is spoken, by code or English name; found out where null.
    const char *language;
    // Text that could have come before: names and words to expect; may be null.
    const char *prompt;
    // Tried one after the other until a transcript is neither repetitive nor unsure; null for 0, 0.2, 0.4, 0.6, 0.8 and 1.
    const float *temperatures;
    // How many temperatures there are.
    size_t temperature_count;
    // Hypotheses that are followed; 0 for 5, or as many as the transcriber was loaded for; 1 takes the likeliest token each time.
    size_t beams;
    // Samples of which the best is taken at temperatures above 0; 0 for 5, or as many as the transcriber was loaded for.
    size_t best_of;
    // The same seed gives the same samples.
    uint64_t seed;
    // How many times as many hypotheses must end before a search does; 0 for 1.
    float patience;
    // By how much length counts when hypotheses are compared, up to 1; 0 for fully.
    float length_penalty;
    // Above this, text is repetitive; 0 for 2.4, INFINITY for never.
    float compression_ratio;
    // Below this mean of the logarithms of probabilities, a transcript is unsure; 0 for -1, -INFINITY for never.
    float log_probability;
    // Above this probability nobody speaks, unless the transcript is sure; 0 for 0.6, INFINITY for never.
    float no_speech;
    // Write English, whatever is spoken.
    bool translate;
    // Do without times: segments are whole windows then.
    bool no_timestamps;
    // Find out when each word is said; AKUNU_FORMAT_JSON has the words.
    bool words;
    // Give the prompt to every window, not to the first alone.
    bool carry_prompt;
    // Do not give each window the text before it as context.
    bool no_context;
} akunu_transcribe_options;

// A part of what was said, about a sentence. It belongs to the library.
typedef struct {
    // Seconds from the beginning of the recording.
    double start;
    // Seconds from the beginning of the recording.
    double end;
    // What was said; ends with a zero.
    const char *text;
} akunu_segment;

// Hears each segment as it is done; false ends the transcription. It must not throw. The segment is gone when it returns.
typedef bool (*akunu_segment_callback)(void *user, const akunu_segment *segment);

// What a transcription took.
typedef struct {
    // sizeof(akunu_transcribe_statistics), set by the caller.
    size_t size;
    // Length of the recording.
    double audio_seconds;
    // Time it took to read it.
    double read_seconds;
    // Time the encoder took.
    double encode_seconds;
    // Time it took to find the text of what was encoded.
    double decode_seconds;
    // The code of the language that is spoken, such as "en"; ends with a zero.
    char language[16];
} akunu_transcribe_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a scheduler. All sequences of the model are for it: as many requests run at the same time, others wait. `*scheduler`
// is to be given to akunu_scheduler_free.
akunu_status akunu_scheduler_create(const akunu_model *model,
                                    akunu_scheduler **scheduler);

// Frees a scheduler; null is fine. If another thread waits for requests, they end first.
akunu_status akunu_scheduler_free(akunu_scheduler *scheduler);

// Ends all requests that are under way, from any thread: they finish as AKUNU_CANCELLED.
akunu_status akunu_scheduler_stop(const akunu_scheduler *scheduler);

// Runs requests together until all have ended, and gives their pieces to `callback`, which may be null, on this thread. If one
// fails, so does the call, and the others end.
akunu_status akunu_scheduler_run(const akunu_scheduler *scheduler,
                                 const akunu_request *requests,
                                 size_t count,
                                 akunu_batch_callback callback,
                                 void *user);

// Makes a constraint of some language: AKUNU_JSON_OBJECT and so on. `*constraint` is to be given to akunu_constraint_free.
akunu_status akunu_constraint_create(uint32_t language,
                                     const char *source,
                                     akunu_constraint **constraint);

// Frees a constraint; null is fine.
akunu_status akunu_constraint_free(akunu_constraint *constraint);

// Loads a model to embed with. `path` is a file or a directory, or the name of a model that `akunu pull` fetched; `options` may
// be null. `*embedder` is to be given to akunu_embedder_free.
akunu_status akunu_embedder_load(const char *path,
                                 const akunu_embedder_options *options,
                                 akunu_embedder **embedder);

// Makes an embedder of a model that is loaded, with its weights; both may be freed in any order. Backend and threads of the options do
// not count: it runs where the model runs.
akunu_status akunu_embedder_of(const akunu_model *model,
                               const akunu_embedder_options *options,
                               akunu_embedder **embedder);

// Frees an embedder; null is fine.
akunu_status akunu_embedder_free(akunu_embedder *embedder);

// How many numbers a vector has.
akunu_status akunu_embedder_dimensions(const akunu_embedder *embedder, size_t *dimensions);

// One vector for each text, one after another. `flags` are AKUNU_EMBED_RAW and AKUNU_EMBED_CUT, or 0. `*length` is how many
// numbers there are: count times the dimensions.
akunu_status akunu_embed(const akunu_embedder *embedder,
                         const char *const *texts,
                         size_t count,
                         uint32_t flags,
                         float *vectors,
                         size_t capacity,
                         size_t *length);

// The vector of one text that is given as tokens, those around it included.
akunu_status akunu_embed_tokens(const akunu_embedder *embedder,
                                const uint32_t *tokens,
                                size_t count,
                                uint32_t flags,
                                float *vector,
                                size_t capacity,
                                size_t *length);

// Begins to continue tokens. Nothing is computed before the first piece. What the sequence holds is replaced, and what it has in
// common with the prompt is not fed again; with options.append the prompt comes after it.
akunu_status akunu_generate_begin(akunu_sequence *sequence,
                                  const uint32_t *prompt,
                                  size_t count,
                                  const akunu_generate_options *options);

// The same for text. Names of special tokens in it are special tokens.
akunu_status akunu_generate_begin_text(akunu_sequence *sequence,
                                       const char *prompt,
                                       const akunu_generate_options *options);

// The same for a conversation, given whole every time: what the sequence holds of it already is not fed again. Thoughts come
// with the marks the model puts around them. options.append is not for this.
akunu_status akunu_generate_begin_chat(akunu_sequence *sequence,
                                       const akunu_message *messages,
                                       size_t message_count,
                                       const akunu_generate_options *options);

// Gives the next piece, or AKUNU_DONE at the end. The piece is valid until the next call with this sequence.
akunu_status akunu_generate_next(akunu_sequence *sequence, akunu_piece *piece);

// What the sequence's last generation took so far, and why it ended.
akunu_status akunu_generate_statistics(const akunu_sequence *sequence, akunu_statistics *statistics);

// All of it in one call: begins to continue tokens, and gives every piece to `callback`. `statistics` may be null.
akunu_status akunu_generate(akunu_sequence *sequence,
                            const uint32_t *prompt,
                            size_t count,
                            const akunu_generate_options *options,
                            akunu_piece_callback callback,
                            void *user,
                            akunu_statistics *statistics);

// Loads a model. `path` is a file or a directory, or the name of a model that `akunu pull` fetched; `options` may be
// null. `*model` is to be given to akunu_model_free.
akunu_status akunu_model_load(const char *path,
                              const akunu_load_options *options,
                              akunu_model **model);

// Frees a model; null is fine. Sequences and schedulers made from it stay as they are: its memory goes with the last of them.
akunu_status akunu_model_free(akunu_model *model);

// What the model is made of.
akunu_status akunu_model_get_info(const akunu_model *model, akunu_model_info *info);

// How many tensors the model's file has.
akunu_status akunu_tensor_count(const akunu_model *model, size_t *count);

// The name of tensor `index` of the file.
akunu_status akunu_tensor_name(const akunu_model *model,
                               size_t index,
                               char *buffer,
                               size_t capacity,
                               size_t *length);

// Dtype and shape of tensor `index` of the file.
akunu_status akunu_tensor_get_info(const akunu_model *model, size_t index, akunu_tensor_info *info);

// Times every step of the model's runs from now on, or no longer, and forgets what was measured before. AKUNU_UNSUPPORTED
// where the backend cannot.
akunu_status akunu_model_time_steps(const akunu_model *model,
                                    bool on);

// The steps in the order they run; none unless they are timed.
akunu_status akunu_model_step_times(const akunu_model *model,
                                    akunu_step_time *steps,
                                    size_t capacity,
                                    size_t *count);

// Makes an empty sequence. There can be as many as the model was loaded with room for. `*sequence` is to be given to
// akunu_sequence_free.
akunu_status akunu_sequence_create(const akunu_model *model,
                                   akunu_sequence **sequence);

// Makes a second sequence with the same tokens. Nothing is copied before one of the two goes on.
akunu_status akunu_sequence_fork(akunu_sequence *sequence, akunu_sequence **fork);

// Frees a sequence; null is fine. If another thread is using it, that ends first.
akunu_status akunu_sequence_free(akunu_sequence *sequence);

// Ends what the sequence is doing, from any thread: a generation ends as AKUNU_CANCELLED, other calls fail with
// AKUNU_STOPPED. A generation that begins later goes its way; of other calls, one that has not begun yet ends when it does.
akunu_status akunu_sequence_stop(const akunu_sequence *sequence);

// How many tokens the sequence holds: the position of the next one. A generation that is under way ends.
akunu_status akunu_sequence_position(akunu_sequence *sequence, size_t *position);

// The tokens the sequence holds. A generation that is under way ends.
akunu_status akunu_sequence_tokens(akunu_sequence *sequence,
                                   uint32_t *tokens,
                                   size_t capacity,
                                   size_t *count);

// Takes back all tokens from `position` on; 0 empties the sequence.
akunu_status akunu_sequence_rollback(akunu_sequence *sequence, size_t position);

// Sets how akunu_sequence_prefill, _step and _chain choose tokens; null for the likeliest, as it is at first.
akunu_status akunu_sequence_set_sampling(akunu_sequence *sequence, const akunu_sampling *sampling);

// Feeds tokens and gives the one chosen after them, which is not fed.
akunu_status akunu_sequence_prefill(akunu_sequence *sequence,
                                    const uint32_t *tokens,
                                    size_t count,
                                    uint32_t *next);

// Feeds one token and gives the one chosen after it, which is not fed.
akunu_status akunu_sequence_step(akunu_sequence *sequence, uint32_t token, uint32_t *next);

// Feeds `token`, the token chosen after it, and so on, in one go, until `count` tokens are chosen and in `tokens`. All but the
// last were fed.
akunu_status akunu_sequence_chain(akunu_sequence *sequence,
                                  uint32_t token,
                                  size_t count,
                                  uint32_t *tokens);

// Feeds tokens and gives the logits after each: count times vocabulary numbers. Not more tokens than the model was loaded with
// outputs for.
akunu_status akunu_sequence_logits(akunu_sequence *sequence,
                                   const uint32_t *tokens,
                                   size_t count,
                                   float *logits,
                                   size_t capacity,
                                   size_t *length);

// Loads a speech model. `path` is a file or a directory, or the name of a model that `akunu pull` fetched; `options` may be
// null. `*transcriber` is to be given to akunu_transcriber_free.
akunu_status akunu_transcriber_load(const char *path,
                                    const akunu_transcriber_options *options,
                                    akunu_transcriber **transcriber);

// Frees a transcriber; null is fine.
akunu_status akunu_transcriber_free(akunu_transcriber *transcriber);

// What the model is made of.
akunu_status akunu_transcriber_get_info(const akunu_transcriber *transcriber, akunu_transcriber_info *info);

// Ends what the transcriber is doing, from any thread: the call fails with AKUNU_STOPPED.
akunu_status akunu_transcriber_stop(const akunu_transcriber *transcriber);

// Writes down what is said in a sound file (WAV, FLAC, MP3, Ogg, M4A and others). `options`, `callback` and `statistics` may be
// null; akunu_transcriber_text has the result.
akunu_status akunu_transcribe(const akunu_transcriber *transcriber,
                              const char *path,
                              const akunu_transcribe_options *options,
                              akunu_segment_callback callback,
                              void *user,
                              akunu_transcribe_statistics *statistics);

// The same for samples: one channel at 16 kHz, from -1 to 1.
akunu_status akunu_transcribe_pcm(const akunu_transcriber *transcriber,
                                  const float *samples,
                                  size_t count,
                                  const akunu_transcribe_options *options,
                                  akunu_segment_callback callback,
                                  void *user,
                                  akunu_transcribe_statistics *statistics);

// What was said in the last recording that was transcribed whole: `format` is one of AKUNU_FORMAT_*.
akunu_status akunu_transcriber_text(const akunu_transcriber *transcriber,
                                    uint32_t format,
                                    char *buffer,
                                    size_t capacity,
                                    size_t *length);

// What went wrong in the last call that failed on this thread; null if none did. Valid until the next call that fails.
const char *akunu_error_message(void);

// What can be done about it; null where that is plain from the message.
const char *akunu_error_hint(void);

// The tokens of a text. `flags` are AKUNU_PARSE_SPECIAL and AKUNU_ADD_SPECIAL, or 0. `*count` is how many there are, also
// where `capacity` is too small for them (AKUNU_SHORT_BUFFER, and nothing is written): with a capacity of 0 it counts.
akunu_status akunu_tokenize(const akunu_model *model,
                            const char *text,
                            uint32_t flags,
                            uint32_t *tokens,
                            size_t capacity,
                            size_t *count);

// The text of tokens. Control tokens have none. Bytes that are no whole character become U+FFFD.
akunu_status akunu_detokenize(const akunu_model *model,
                              const uint32_t *tokens,
                              size_t count,
                              char *buffer,
                              size_t capacity,
                              size_t *length);

// The bytes one token stands for, a control token's name included. They need not be whole characters.
akunu_status akunu_token_bytes(const akunu_model *model,
                               uint32_t token,
                               char *buffer,
                               size_t capacity,
                               size_t *length);

// Whether a token ends a text.
akunu_status akunu_token_is_end(const akunu_model *model, uint32_t token, bool *ends);

// The tokens a conversation is for the model, up to where its answer begins. Nothing that was said names a special token.
akunu_status akunu_chat_tokens(const akunu_model *model,
                               const akunu_message *messages,
                               size_t message_count,
                               uint32_t *tokens,
                               size_t capacity,
                               size_t *count);

// The same as text, for a person to read: as a prompt it would let users write special tokens.
akunu_status akunu_chat_text(const akunu_model *model,
                             const akunu_message *messages,
                             size_t message_count,
                             char *buffer,
                             size_t capacity,
                             size_t *length);

// The source of the model's chat template, a Jinja program. AKUNU_NOT_FOUND if it was not made for conversations.
akunu_status akunu_chat_template(const akunu_model *model,
                                 char *buffer,
                                 size_t capacity,
                                 size_t *length);

// The library's `AKUNU_ABI_VERSION`: a program should refuse to run with another than its header's.
uint32_t akunu_abi_version(void);

// The library's version, such as "0.1.0". Never freed.
const char *akunu_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* AKUNU_H */
