/* Live loudness normalizer, wait-free pipe and notifier of aulos.
 *
 * Functions that return int return AULOS_OK or a negative value of enum aulos_error, and change
 * their out parameters only on success, unless they say otherwise. A null pointer where an object or
 * a result is expected is AULOS_ERROR_ARGUMENT. No function exits, raises a signal or unwinds: a
 * defect of the library is AULOS_ERROR_INTERNAL, after which the object can only be destroyed.
 *
 * Objects are independent of each other. An object is used by one thread at a time, unless a
 * function says otherwise; the writer and the reader of a pipe are two objects. Memory that is
 * passed in is not kept.
 *
 * "Real-time" means: no allocation, no lock, no system call, and a bounded time per frame or byte,
 * so that the function may be called from an audio callback. All other functions are for other
 * threads.
 *
 * Until version 1 a new minor version may change this interface; the soname then changes. */
#ifndef AULOS_H_
#define AULOS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum aulos_error {
  AULOS_OK = 0,
  AULOS_ERROR_ARGUMENT = -1, /* a null pointer, or a value out of range */
  AULOS_ERROR_MEMORY = -2,   /* the system has not enough memory */
  AULOS_ERROR_INTERNAL = -3, /* a defect of the library */
  AULOS_ERROR_FULL = -4,     /* no room in the pipe or the dispatcher, and nothing was stored */
  AULOS_ERROR_GONE = -5,     /* the other end of the pipe was destroyed */
  AULOS_ERROR_BUSY = -6      /* the dispatcher is in use by another thread or by its own callback */
};

/* The version of the library, such as "0.1.0". */
const char *aulos_version(void);
/* An error in words; never null. */
const char *aulos_error_text(int error);

/* ---------------------------------------------------------------- Live normalizer */

/* Keeps a programme at a target loudness (ITU-R BS.1770, EBU R 128) and below a true-peak ceiling,
 * block by block, with a constant delay. Silence and gaps do not move the gain. */
typedef struct aulos_normalizer aulos_normalizer;

/* The look-ahead, which is also the delay. */
enum aulos_normalizer_mode {
  AULOS_NORMALIZER_FULL = 0, /* 3 s: the gain has fallen before a loud passage begins */
  AULOS_NORMALIZER_MID = 1,  /* 400 ms */
  AULOS_NORMALIZER_LOW = 2,  /* 5 ms, that of the limiter */
  AULOS_NORMALIZER_GAIN_ONLY = 3 /* none, and no limiter: peaks can exceed the ceiling */
};

typedef struct {
  uint32_t rate;      /* frames per second: 8000 to 192000 */
  uint32_t channels;  /* 1 to 64; positions as in WAVE: L R C LFE Ls Rs */
  int32_t mode;       /* one of enum aulos_normalizer_mode */
  int32_t dual_mono;  /* not 0: one channel is played by two loudspeakers */
  double target_lufs; /* -70 to -5 */
  double ceiling_dbtp; /* maximum true peak: -9 to 0 */
  double range_lu;    /* by how much a passage may be quieter before the gain follows: 1 to 50 */
  double min_gain_db; /* -60 to 0 */
  double max_gain_db; /* 0 to 60 */
  double rise_db_s;   /* maximum rise of the gain per second: 0.1 to 20 dB */
  double fall_db_s;   /* maximum fall of the gain per second: 0.1 to 60 dB */
  double gate_lufs;   /* what is quieter counts as silence: -70 to -20 */
  uint32_t memory_s;  /* the part of the programme that counts: the last 10 to 600 s; 0 for all */
} aulos_normalizer_config;

/* Loudness so far. -HUGE_VAL if there is none: silence, or not enough audio. */
typedef struct {
  double momentary_lufs;  /* of the last 400 ms */
  double short_term_lufs; /* of the last 3 s */
  double integrated_lufs; /* gated, of all */
  double range_lu;        /* 0 if there is none */
  double true_peak_dbtp;  /* greatest of all channels */
} aulos_loudness;

typedef struct {
  aulos_loudness input;
  aulos_loudness output;
  double gain_db;      /* without the reduction of the limiter */
  double level_lufs;   /* loudness of the current section, from which the gain follows */
  double reduction_db; /* greatest gain reduction of the limiter in the last call; 0 or less */
  uint64_t clamped;    /* samples that were clipped behind the limiter; expected to be 0 */
  uint64_t rejected;   /* samples not finite or above +20 dBFS, which became silence */
} aulos_normalizer_status;

/* Fills config with a preset: "r128" (-23 LUFS), "a85", "stream-14", "stream-16", "podcast" or
 * "replaygain"; null means "r128". Mode full, 48000 Hz, 2 channels. AULOS_ERROR_ARGUMENT for another
 * name. */
int aulos_normalizer_config_init(aulos_normalizer_config *config, const char *preset);

/* Creates a normalizer: about 4 MB for stereo at 48 kHz. On failure *normalizer is null. */
int aulos_normalizer_create(const aulos_normalizer_config *config, aulos_normalizer **normalizer);

/* Frees a normalizer; null is ignored. */
void aulos_normalizer_destroy(aulos_normalizer *normalizer);

/* Processes interleaved frames in place: the output is the input of aulos_normalizer_delay frames
 * before, at first silence. Full scale is 1.0. Blocks may have any size.
 * Real-time; ten times per second of audio the gain is computed, which takes some microseconds. */
int aulos_normalizer_process(aulos_normalizer *normalizer, float *samples, size_t frames);

/* The same from one buffer to another; the two may overlap. Real-time. */
int aulos_normalizer_process_to(aulos_normalizer *normalizer, const float *in, float *out,
                                size_t frames);

/* At the end of a programme: fills `frames` frames of `out` with what is still delayed, then with
 * silence, and writes the number of delayed frames. Call it until that is 0; the normalizer is then
 * ready for more input, with its gain unchanged. Real-time. */
int aulos_normalizer_drain(aulos_normalizer *normalizer, float *out, size_t frames,
                           size_t *delayed);

/* Changes what is in dB, LU and seconds, and dual_mono; the gain moves there at the usual speed.
 * AULOS_ERROR_ARGUMENT, and no change, if rate, channels or mode differ or a value is out of range.
 * Real-time. */
int aulos_normalizer_set(aulos_normalizer *normalizer, const aulos_normalizer_config *config);

/* Marks a discontinuity: discards the delayed sound and keeps the gain. Real-time. */
int aulos_normalizer_interrupt(aulos_normalizer *normalizer);

/* The exact delay in frames; 0 for null. Real-time. */
size_t aulos_normalizer_delay(const aulos_normalizer *normalizer);

/* Real-time; each integrated loudness and range takes a pass over a histogram. */
int aulos_normalizer_get_status(const aulos_normalizer *normalizer, aulos_normalizer_status *status);

/* ---------------------------------------------------------------- Pipe */

/* A byte stream in whole frames from one thread to another, in memory of a fixed size.
 *
 * An end is wait-free or waiting, as the configuration says. A wait-free end never waits and never
 * wakes a thread: it is the one for an audio callback. A waiting end sleeps until the other end has
 * made progress, and wakes it; beside a wait-free end, which wakes no thread, it polls every
 * millisecond while it sleeps. Any two kinds work together. There is no file descriptor to poll.
 *
 * Sizes are in bytes in calls and in frames in the configuration. */
typedef struct aulos_pipe_writer aulos_pipe_writer;
typedef struct aulos_pipe_reader aulos_pipe_reader;

/* The encoding of a sample, little-endian. It sets the frame's size and what silence is. */
enum aulos_pipe_sample {
  AULOS_PIPE_BYTES = 0, /* not audio: one byte, silence is 0 */
  AULOS_PIPE_U8 = 1,
  AULOS_PIPE_MULAW = 2,
  AULOS_PIPE_ALAW = 3,
  AULOS_PIPE_S16 = 4,
  AULOS_PIPE_S24 = 5, /* in three bytes */
  AULOS_PIPE_S32 = 6,
  AULOS_PIPE_F32 = 7
};

/* What happens to frames that do not fit. Dropped frames are counted. */
enum aulos_pipe_overflow {
  AULOS_PIPE_BLOCK = 0,       /* a waiting writer waits; a wait-free one stores what fits */
  AULOS_PIPE_ERROR = 1,       /* AULOS_ERROR_FULL, and nothing is stored */
  AULOS_PIPE_DROP_NEWEST = 2, /* what fits is stored, the rest is dropped */
  AULOS_PIPE_DROP_OLDEST = 3  /* the oldest frames are dropped, unless the reader has them in place */
};

/* What a read by a wait-free reader puts in the place of missing frames. They are counted. */
enum aulos_pipe_underrun {
  AULOS_PIPE_SHORT = 0,   /* nothing */
  AULOS_PIPE_SILENCE = 1, /* silence in the sample encoding */
  AULOS_PIPE_REPEAT = 2   /* the latest frames, fading out within 10 ms; not BYTES, MULAW, ALAW */
};

typedef struct {
  size_t capacity_frames; /* at least 1 */
  uint32_t rate;          /* frames per second; 0 if there is none */
  uint32_t channels;      /* samples per frame, at least 1 */
  int32_t sample;         /* one of enum aulos_pipe_sample */
  int32_t overflow;       /* one of enum aulos_pipe_overflow */
  int32_t underrun;       /* one of enum aulos_pipe_underrun */
  int32_t writer_waits;   /* not 0: the writer is a waiting end */
  int32_t reader_waits;   /* not 0: the reader is a waiting end */
  /* A waiting writer sleeps from this fill on, and resumes at the other. 0: the capacity, and half
   * of the pause. 0 <= resume < pause <= capacity. */
  size_t pause_frames;
  size_t resume_frames;
} aulos_pipe_config;

enum aulos_pipe_end {
  AULOS_PIPE_OPEN = 0,
  AULOS_PIPE_FINISHED = 1, /* aulos_pipe_finish */
  AULOS_PIPE_FAILED = 2,   /* aulos_pipe_fail */
  AULOS_PIPE_DROPPED = 3   /* aulos_pipe_writer_destroy: the end of the stream may be missing */
};

typedef struct {
  size_t stored;  /* bytes that are in the pipe now; the last ones with DROP_OLDEST */
  size_t dropped; /* bytes that were dropped, old or new */
} aulos_pipe_written;

typedef struct {
  size_t bytes;     /* real bytes, at the front of the buffer */
  size_t padded;    /* inserted bytes after them */
  size_t skipped;   /* bytes that were lost before these: dropped as the oldest, or cleared */
  int32_t end;      /* one of enum aulos_pipe_end, once everything was read */
  uint32_t failure; /* the code of aulos_pipe_fail */
} aulos_pipe_read_result;

typedef struct {
  size_t capacity;   /* in bytes */
  size_t fill;       /* in bytes */
  size_t high_water; /* highest fill after a write, in bytes */
  uint64_t dropped_frames;
  uint64_t padded_frames;
  uint64_t cleared_frames;
} aulos_pipe_status;

/* Creates a pipe; allocates, and touches every page of its memory. On failure both are null.
 * AULOS_ERROR_MEMORY for a size that the system cannot give. */
int aulos_pipe_create(const aulos_pipe_config *config, aulos_pipe_writer **writer,
                      aulos_pipe_reader **reader);

/* Writes the whole frames of `data`; what is not stored and not dropped remains the caller's.
 * AULOS_ERROR_GONE if the reader was destroyed, AULOS_ERROR_FULL with AULOS_PIPE_ERROR. `written` may
 * be null. Wait-free writer: real-time. Waiting writer with AULOS_PIPE_BLOCK: returns when all is
 * stored. */
int aulos_pipe_write(aulos_pipe_writer *writer, const void *data, size_t bytes,
                     aulos_pipe_written *written);

/* Free memory of the pipe, to be written in place: at most `bytes`, in whole frames; valid until the
 * next call with this writer. Wait-free writer: real-time, and *reserved may be 0. Waiting writer:
 * waits for at least one frame. */
int aulos_pipe_reserve(aulos_pipe_writer *writer, size_t bytes, void **data, size_t *reserved);

/* Hands the first `bytes` of the reserved memory to the reader; whole frames, and no more than were
 * reserved (else AULOS_ERROR_ARGUMENT). Wait-free writer: real-time. */
int aulos_pipe_commit(aulos_pipe_writer *writer, size_t bytes);

/* Makes the reader skip what was written so far, at its next call. Real-time. */
int aulos_pipe_clear(aulos_pipe_writer *writer);

/* Ends the stream and frees the writer; null is ignored. The reader gets the end after the data. */
void aulos_pipe_finish(aulos_pipe_writer *writer);
void aulos_pipe_fail(aulos_pipe_writer *writer, uint32_t failure);
void aulos_pipe_writer_destroy(aulos_pipe_writer *writer);

/* Reads whole frames into `out`. Wait-free reader: real-time; what is missing is treated as
 * `underrun` says. Waiting reader: waits for at least one frame and inserts nothing; 0 bytes are the
 * end. */
int aulos_pipe_read(aulos_pipe_reader *reader, void *out, size_t bytes,
                    aulos_pipe_read_result *result);

/* The next `bytes` in place; valid until the next call with this reader. *data is null if there are
 * fewer: then read them. Wait-free reader: real-time. Waiting reader: waits for them or for the end;
 * AULOS_ERROR_ARGUMENT if they are more than the capacity. */
int aulos_pipe_peek(aulos_pipe_reader *reader, size_t bytes, const void **data);

/* Returns the first `bytes` that aulos_pipe_peek gave to the writer; whole frames (else
 * AULOS_ERROR_ARGUMENT). Wait-free reader: real-time. */
int aulos_pipe_advance(aulos_pipe_reader *reader, size_t bytes);

/* Frees the reader; null is ignored. The writer gets AULOS_ERROR_GONE. */
void aulos_pipe_reader_destroy(aulos_pipe_reader *reader);

/* Figures of the pipe, each exact for a moment. Real-time. */
int aulos_pipe_writer_status(const aulos_pipe_writer *writer, aulos_pipe_status *status);
int aulos_pipe_reader_status(const aulos_pipe_reader *reader, aulos_pipe_status *status);

/* ---------------------------------------------------------------- Notify */

/* Notifications from a real-time thread to a thread that sleeps, without a system call.
 *
 * Waking a thread takes a system call, so the real-time thread wakes none: its notifier writes into
 * its own memory, and the dispatcher, on another thread, polls at the right time. Callbacks run on
 * the thread that dispatches, in the order of the notifications, across all notifiers.
 *
 *   aulos_notifier     of one real-time thread; its functions are for that thread alone.
 *   aulos_dispatcher   of one thread, such as that of the user interface. Only
 *                      aulos_dispatcher_stop is for every thread. While one of its functions is
 *                      running on another thread, and within its callbacks, all others return
 *                      AULOS_ERROR_BUSY and change nothing. It may be handed to another thread
 *                      between two calls.
 *
 * Two threads that use one notifier at the same time are not detected: a check would cost more than
 * the notification.
 *
 * A callback must not throw a C++ exception. It may use notifiers of its thread, and pipes.
 *
 * To pass values too, write them into a pipe first and then notify: the callback, which has the
 * reader, reads until the pipe is empty. No value is lost then, however late the callback runs. */
typedef struct aulos_dispatcher aulos_dispatcher;
typedef struct aulos_notifier aulos_notifier;

/* Identifies a callback of a dispatcher: plain data, to be copied to the threads that notify it. 0
 * is no callback. After its removal the id is stale, and notifying it has no effect. An id belongs
 * to its dispatcher: another one takes it for a callback of its own. */
typedef uint64_t aulos_callback;

typedef void (*aulos_callback_function)(void *context);

/* When aulos_dispatcher_run polls, and what aulos_dispatcher_dispatch returns as the next time. */
enum aulos_dispatch {
  /* Just after the end of each stream's audio callback, which it learns from
   * aulos_notifier_callback_ended; tens of microseconds late. Notifiers without a period are polled
   * every 5 ms. */
  AULOS_DISPATCH_PHASE_LOCKED = 0,
  AULOS_DISPATCH_INTERVAL = 1, /* at a fixed interval; late by half of it on average */
  AULOS_DISPATCH_EVENT = 2     /* when aulos_notifier_wake is called, which is not real-time */
};

/* The clock of all times below: monotonic, in nanoseconds. Any thread. Real-time where the system
 * maps its clock into the process, as Linux does on x86-64 and Arm. */
uint64_t aulos_clock_ns(void);

/* Creates a dispatcher for at most 256 callbacks and 64 notifiers. `strategy` is one of enum
 * aulos_dispatch; `interval_ns` is 10000 to 10^10 with AULOS_DISPATCH_INTERVAL, else 0. On failure
 * *dispatcher is null. Any thread, not real-time. */
int aulos_dispatcher_create(int strategy, uint64_t interval_ns, aulos_dispatcher **dispatcher);

/* Frees a dispatcher and its callbacks; null is ignored. Notifiers stay valid, without effect, and
 * are freed by themselves. AULOS_ERROR_BUSY, and nothing is freed, while it is in use.
 * Dispatcher's thread, not real-time; no other thread may call aulos_dispatcher_stop any more. */
int aulos_dispatcher_destroy(aulos_dispatcher *dispatcher);

/* Registers a callback. `each` is 0: it runs once for all notifications that came before it runs;
 * otherwise once for each, up to 256 that were not served yet. `context` is passed on and must stay
 * valid until the callback is removed. AULOS_ERROR_FULL after 256. Dispatcher's thread, not
 * real-time. */
int aulos_dispatcher_register(aulos_dispatcher *dispatcher, aulos_callback_function function,
                              void *context, int each, aulos_callback *callback);

/* Removes a callback: it does not run again, whatever was or will be notified.
 * AULOS_ERROR_ARGUMENT if there is no such callback. Dispatcher's thread, not real-time. */
int aulos_dispatcher_unregister(aulos_dispatcher *dispatcher, aulos_callback callback);

/* Runs the callbacks of all notifications that were sent before this call, and writes into
 * *next_ns when to call it again: UINT64_MAX for not before aulos_notifier_wake. `next_ns` may be
 * null. For a program with a loop of its own; calling it at other times does no harm, except
 * latency. Dispatcher's thread, not real-time. */
int aulos_dispatcher_dispatch(aulos_dispatcher *dispatcher, uint64_t now_ns, uint64_t *next_ns);

/* Dispatches and sleeps in between, until aulos_dispatcher_stop is called. Dispatcher's thread, not
 * real-time. */
int aulos_dispatcher_run(aulos_dispatcher *dispatcher);

/* Ends aulos_dispatcher_run; if none is running, the next one ends at once. Any thread, also
 * within a callback. Not real-time: it wakes the dispatcher. */
int aulos_dispatcher_stop(const aulos_dispatcher *dispatcher);

/* Discards the notifications of this callback so far. Dispatcher's thread, not real-time. */
int aulos_dispatcher_cancel(aulos_dispatcher *dispatcher, aulos_callback callback);

/* Writes 1 if this callback was notified and has not run yet, else 0. Dispatcher's thread, not
 * real-time. */
int aulos_dispatcher_is_pending(aulos_dispatcher *dispatcher, aulos_callback callback,
                                int *pending);

/* Runs this callback now, before others, if it is pending; one that runs for each notification
 * runs for all that are pending. Writes 1 if it ran, else 0; `handled` may be null. Dispatcher's
 * thread, not real-time. */
int aulos_dispatcher_handle_now(aulos_dispatcher *dispatcher, aulos_callback callback,
                                int *handled);

/* Creates the notifier of one real-time thread. `period_ns` is the nominal time between two of its
 * audio callbacks (frames * 10^9 / rate), 0 if there is none. AULOS_ERROR_FULL after 64. On failure
 * *notifier is null. Dispatcher's thread, not real-time. */
int aulos_notifier_create(aulos_dispatcher *dispatcher, uint64_t period_ns,
                          aulos_notifier **notifier);

/* Frees a notifier; null is ignored. What it has sent is still served. Any thread, once the
 * notifier's thread does not use it any more; not real-time. */
void aulos_notifier_destroy(aulos_notifier *notifier);

/* Notifies a callback. More than 256 notifications that were not served yet lose their order, but
 * are not lost. Notifier's thread. Real-time: wait-free, some nanoseconds. */
int aulos_notifier_notify(aulos_notifier *notifier, aulos_callback callback);

/* Brings what aulos_notifier_notify needs into the caches, at the begin of an audio callback:
 * optional. Notifier's thread. Real-time. */
int aulos_notifier_prefetch(aulos_notifier *notifier);

/* Reports the end of the audio callback, as the last thing in it; AULOS_DISPATCH_PHASE_LOCKED
 * depends on it. Notifier's thread. Real-time: one store. */
int aulos_notifier_callback_ended(aulos_notifier *notifier, uint64_t now_ns);

/* Wakes the dispatcher, if it sleeps. For a thread that can afford a system call: one that
 * computes faster than real time, or a device loop that has already handed its buffer over.
 * Notifier's thread. Not real-time. */
int aulos_notifier_wake(const aulos_notifier *notifier);

#ifdef __cplusplus
}
#endif

#endif
