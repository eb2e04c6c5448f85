/* Loudness measurement as defined by ITU-R BS.1770 and EBU R 128, by aulos.
 *
 * Source and binary compatible with libebur128 1.2.6. A state is used by one thread at a time;
 * different states are independent. Functions that return int return EBUR128_SUCCESS or another
 * value of enum error, and write *out only on success. */
#ifndef EBUR128_H_
#define EBUR128_H_

#include <stddef.h>

#define EBUR128_VERSION_MAJOR 1
#define EBUR128_VERSION_MINOR 2
#define EBUR128_VERSION_PATCH 6

#ifdef __cplusplus
extern "C" {
#endif

/* Loudspeaker position of a channel (ITU-R BS.2051): layer M middle, U upper, T top, B bottom;
 * azimuth p (plus) or m (minus) in degrees; SC at the edge of the screen. */
enum channel {
  EBUR128_UNUSED = 0,
  EBUR128_LEFT = 1,
  EBUR128_Mp030 = 1,
  EBUR128_RIGHT = 2,
  EBUR128_Mm030 = 2,
  EBUR128_CENTER = 3,
  EBUR128_Mp000 = 3,
  EBUR128_LEFT_SURROUND = 4,
  EBUR128_Mp110 = 4,
  EBUR128_RIGHT_SURROUND = 5,
  EBUR128_Mm110 = 5,
  EBUR128_DUAL_MONO = 6,
  EBUR128_MpSC = 7,
  EBUR128_MmSC = 8,
  EBUR128_Mp060 = 9,
  EBUR128_Mm060 = 10,
  EBUR128_Mp090 = 11,
  EBUR128_Mm090 = 12,
  EBUR128_Mp135 = 13,
  EBUR128_Mm135 = 14,
  EBUR128_Mp180 = 15,
  EBUR128_Up000 = 16,
  EBUR128_Up030 = 17,
  EBUR128_Um030 = 18,
  EBUR128_Up045 = 19,
  EBUR128_Um045 = 20,
  EBUR128_Up090 = 21,
  EBUR128_Um090 = 22,
  EBUR128_Up110 = 23,
  EBUR128_Um110 = 24,
  EBUR128_Up135 = 25,
  EBUR128_Um135 = 26,
  EBUR128_Up180 = 27,
  EBUR128_Tp000 = 28,
  EBUR128_Bp000 = 29,
  EBUR128_Bp045 = 30,
  EBUR128_Bm045 = 31
};

enum error {
  EBUR128_SUCCESS = 0,
  EBUR128_ERROR_NOMEM,                 /* out of memory, or an argument out of range */
  EBUR128_ERROR_INVALID_MODE,          /* the mode of the state lacks this measurement */
  EBUR128_ERROR_INVALID_CHANNEL_INDEX, /* no such channel, or invalid position for it */
  EBUR128_ERROR_NO_CHANGE              /* the value is set already */
};

/* Measurements of a state; values can be combined with |. */
enum mode {
  EBUR128_MODE_M = (1 << 0),                         /* 400 ms */
  EBUR128_MODE_S = (1 << 1) | EBUR128_MODE_M,        /* 3 s */
  EBUR128_MODE_I = (1 << 2) | EBUR128_MODE_M,        /* integrated, gated */
  EBUR128_MODE_LRA = (1 << 3) | EBUR128_MODE_S,      /* loudness range */
  EBUR128_MODE_SAMPLE_PEAK = (1 << 4) | EBUR128_MODE_M,
  EBUR128_MODE_TRUE_PEAK = (1 << 5) | EBUR128_MODE_M | EBUR128_MODE_SAMPLE_PEAK,
  EBUR128_MODE_HISTOGRAM = (1 << 6)                  /* I and LRA in 0.1 LU steps, fixed memory */
};

struct ebur128_state_internal;

typedef struct {
  int mode;                 /* as given to ebur128_init; read only */
  unsigned int channels;    /* read only */
  unsigned long samplerate; /* read only */
  struct ebur128_state_internal* d;
} ebur128_state;

void ebur128_get_version(int* major, int* minor, int* patch);

/* 1 to 64 channels, 16 to 2822400 Hz; NULL on an invalid argument or without memory. */
ebur128_state* ebur128_init(unsigned int channels, unsigned long samplerate, int mode);
/* Frees *st and sets it to NULL. */
void ebur128_destroy(ebur128_state** st);

/* Sets the position of a channel, one of enum channel. Defaults: L R C - Ls Rs; for four channels
 * L R Ls Rs; for five L R C Ls Rs; channels after the sixth are not measured. */
int ebur128_set_channel(ebur128_state* st, unsigned int channel_number, int value);
/* Changes the number of channels or the sample rate; keeps the measurement so far. */
int ebur128_change_parameters(ebur128_state* st, unsigned int channels, unsigned long samplerate);
/* Sets the maximum window of ebur128_loudness_window in ms, at most one hour; clears the windows. */
int ebur128_set_max_window(ebur128_state* st, unsigned long window);
/* Sets the history used for I and LRA in ms; no effect on histograms. */
int ebur128_set_max_history(ebur128_state* st, unsigned long history);

/* Adds any number of interleaved frames. Full scale is the limit of the type for integers, and 1.0
 * for floating point. */
int ebur128_add_frames_short(ebur128_state* st, const short* src, size_t frames);
int ebur128_add_frames_int(ebur128_state* st, const int* src, size_t frames);
int ebur128_add_frames_float(ebur128_state* st, const float* src, size_t frames);
int ebur128_add_frames_double(ebur128_state* st, const double* src, size_t frames);

/* In LUFS; -HUGE_VAL if nothing was measured. */
int ebur128_loudness_global(ebur128_state* st, double* out);
int ebur128_loudness_global_multiple(ebur128_state** sts, size_t size, double* out);
int ebur128_loudness_momentary(ebur128_state* st, double* out);
int ebur128_loudness_shortterm(ebur128_state* st, double* out);
int ebur128_loudness_window(ebur128_state* st, unsigned long window, double* out);
/* In LU. */
int ebur128_loudness_range(ebur128_state* st, double* out);
int ebur128_loudness_range_multiple(ebur128_state** sts, size_t size, double* out);
/* In LUFS; -70 if nothing was measured. */
int ebur128_relative_threshold(ebur128_state* st, double* out);

/* Peak amplitudes, 1.0 is full scale: since the start, and (prev) of the last call only. */
int ebur128_sample_peak(ebur128_state* st, unsigned int channel_number, double* out);
int ebur128_prev_sample_peak(ebur128_state* st, unsigned int channel_number, double* out);
int ebur128_true_peak(ebur128_state* st, unsigned int channel_number, double* out);
int ebur128_prev_true_peak(ebur128_state* st, unsigned int channel_number, double* out);

#ifdef __cplusplus
}
#endif

#endif
