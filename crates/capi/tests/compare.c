/* Prints what a libebur128 answers, for many signals and for every corner: the same program is
 * built against ours and against the distribution's, and the outputs are compared. Each line is
 * "name return-value number". A number that was not written stays -99.
 * Arguments: how many programmes, and by how much sounds are shorter (for runs under valgrind). */
#include <ebur128.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t shorter = 1;
static uint64_t seed = 1;
static double draw(void) { /* -1 .. 1 */
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (double)(seed >> 11) / 4503599627370496.0 - 1.0;
}

static void say(const char *name, int rc, double value) { printf("%s %d %.17g\n", name, rc, value); }

#define ASK(name, call) do { double v = -99; int rc = (call); say(name, rc, v); } while (0)

static void report(ebur128_state *st) {
  unsigned c;
  ASK("momentary", ebur128_loudness_momentary(st, &v));
  ASK("shortterm", ebur128_loudness_shortterm(st, &v));
  ASK("window", ebur128_loudness_window(st, 250, &v));
  ASK("global", ebur128_loudness_global(st, &v));
  ASK("range", ebur128_loudness_range(st, &v));
  ASK("threshold", ebur128_relative_threshold(st, &v));
  for (c = 0; c <= st->channels; ++c) {
    ASK("sample_peak", ebur128_sample_peak(st, c, &v));
    ASK("prev_sample_peak", ebur128_prev_sample_peak(st, c, &v));
    ASK("true_peak", ebur128_true_peak(st, c, &v));
    ASK("prev_true_peak", ebur128_prev_true_peak(st, c, &v));
  }
  printf("struct %d %u %lu\n", st->mode, st->channels, st->samplerate);
}

/* A programme that speaks and pauses; the level changes seven times a second. */
static double *programme(unsigned channels, unsigned long rate, size_t frames) {
  double *x = malloc(frames * channels * sizeof *x), level = .1, held = 0;
  size_t i;
  unsigned c;
  for (i = 0; i < frames; ++i) {
    if (i % (rate / 7) == 0) level = pow(10, 1.2 * draw() - 1.5);
    for (c = 0; c < channels; ++c) {
      held = .7 * held + .3 * draw();
      x[i * channels + c] = level * (.8 * held + .15 * sin(i * 1400.0 * (c + 1) / rate));
    }
  }
  return x;
}

static void feed(ebur128_state *st, const double *x, size_t frames, int type) {
  frames = frames / shorter + (shorter > 1 && frames > 0);
  size_t n = frames * st->channels, i;
  short *s = malloc(n * sizeof *s + 1);
  int *w = malloc(n * sizeof *w + 1);
  float *f = malloc(n * sizeof *f + 1);
  for (i = 0; i < n; ++i) {
    s[i] = (short)(x[i] * 30000);
    w[i] = (int)(x[i] * 2000000000);
    f[i] = (float)x[i];
  }
  int rc = type == 0   ? ebur128_add_frames_short(st, s, frames)
           : type == 1 ? ebur128_add_frames_int(st, w, frames)
           : type == 2 ? ebur128_add_frames_float(st, f, frames)
                       : ebur128_add_frames_double(st, x, frames);
  if (rc) printf("add %d\n", rc);
  free(s), free(w), free(f);
}

/* Random modes, rates, layouts, types and call sizes. */
static void programmes(int count) {
  static const unsigned long rates[] = {8000, 11025, 22050, 32000, 44100, 48000, 48000, 88200, 96000, 192000};
  static const int modes[] = {1, 3, 5, 11, 13, 15, 17, 31, 49, 63, 127, 69, 75, 1 | 8, 5 | 32};
  int k;
  for (k = 0; k < count; ++k) {
    unsigned long rate = rates[(unsigned)(fabs(draw()) * 10)];
    unsigned channels = 1 + (unsigned)(fabs(draw()) * 8), c;
    int mode = modes[(unsigned)(fabs(draw()) * 15)], type = k % 4;
    size_t frames = (size_t)(rate * (rate > 50000 ? 3.4 : 6.5 * fabs(draw()) + .2)) / shorter, at = 0;
    size_t largest = k % 3 == 0 ? 700 : k % 3 == 1 ? 9000 : 200000;
    double *x = programme(channels, rate, frames);
    ebur128_state *st = ebur128_init(channels, rate, mode);
    printf("programme %d: %lu Hz, %u channels, mode %d, type %d\n", k, rate, channels, mode, type);
    if (k % 2) for (c = 0; c < channels; ++c) {
      int value = (int)(fabs(draw()) * 34);
      printf("channel %u %d %d\n", c, value, ebur128_set_channel(st, c, value));
    }
    while (at < frames) {
      size_t n = 1 + (size_t)(fabs(draw()) * largest);
      if (n > frames - at) n = frames - at;
      feed(st, x + at * channels, n, type);
      at += n;
      if (draw() > .9) report(st);
    }
    report(st);
    ebur128_destroy(&st);
    printf("gone %d\n", st == NULL);
    free(x);
  }
}

static void init_corners(void) {
  static const unsigned channels[] = {0, 1, 2, 64, 65, 4000000000u};
  static const unsigned long rates[] = {0, 15, 16, 17, 100, 48000, 2822400, 2822401, 4294967296ul + 48000};
  size_t i, k;
  int mode, major = 0, minor = 0, patch = 0;
  ebur128_get_version(&major, &minor, &patch);
  printf("version %d.%d.%d, header %d.%d.%d\n", major, minor, patch, EBUR128_VERSION_MAJOR,
         EBUR128_VERSION_MINOR, EBUR128_VERSION_PATCH);
  printf("sizes %zu %zu\n", sizeof(ebur128_state), offsetof(ebur128_state, samplerate));
  for (i = 0; i < 6; ++i)
    for (k = 0; k < 9; ++k) {
      ebur128_state *st = ebur128_init(channels[i], rates[k], EBUR128_MODE_M);
      printf("init %u %lu: %d\n", channels[i], rates[k], st != NULL);
      /* Below 18 Hz the original writes past its window. */
      if (st && rates[k] > 17) {
        double zeros[64 * 20] = {0};
        feed(st, zeros, 20, 3);
        ASK("momentary", ebur128_loudness_momentary(st, &v));
      }
      if (st) ebur128_destroy(&st);
    }
  for (mode = 0; mode < 256; ++mode) {
    ebur128_state *st = ebur128_init(2, 48000, mode);
    printf("mode %d: %d\n", mode, st != NULL);
    if (st) report(st), ebur128_destroy(&st);
  }
}

static void setter_corners(void) {
  static const int modes[] = {1, 5, 15, 63, 127};
  static const unsigned long values[] = {0, 1, 100, 400, 401, 1000, 3000, 3001, 3000, (unsigned long)-1, (unsigned long)-1};
  int m;
  size_t k;
  double *x = programme(2, 8000, 8000 * 12);
  for (m = 0; m < 5; ++m) {
    ebur128_state *st = ebur128_init(2, 8000, modes[m]);
    printf("setters, mode %d\n", modes[m]);
    feed(st, x, 8000 * 7 + 1234, 3);
    for (k = 0; k < 11; ++k) {
      /* The original takes a thousand times the memory for its windows: hence the low rate. */
      printf("max_window %lu %d\n", values[k], ebur128_set_max_window(st, values[k]));
      report(st);
      feed(st, x, 8000 * 2 + 777, 3);
      report(st);
    }
    for (k = 0; k < 11; ++k) {
      printf("max_history %lu %d\n", values[k], ebur128_set_max_history(st, values[k]));
      feed(st, x + 8000, 8000 * 4, 3);
      report(st);
    }
    for (k = 0; k < 10; ++k) {
      static const unsigned c[] = {2, 2, 2, 0, 65, 3, 3, 1, 2, 2};
      static const unsigned long r[] = {8000, 44100, 44100, 44100, 44100, 44100, 15, 22050, 48000, 8000};
      printf("change %u %lu %d\n", c[k], r[k], ebur128_change_parameters(st, c[k], r[k]));
      report(st);
      feed(st, x, 8000 * 3, 2);
      report(st);
    }
    ebur128_destroy(&st);
  }
  free(x);
}

static void channel_corners(void) {
  unsigned n;
  int value;
  double x[4800 * 3];
  size_t i;
  for (n = 1; n <= 3; ++n)
    for (value = -2; value < 40; ++value) {
      ebur128_state *st = ebur128_init(n, 48000, 63);
      printf("set_channel %u: %d", value, ebur128_set_channel(st, 0, value));
      printf(" %d", ebur128_set_channel(st, n - 1, value));
      printf(" %d\n", ebur128_set_channel(st, n, value));
      for (i = 0; i < 4800 * n; ++i) x[i] = .3 * sin(i * .11);
      for (i = 0; i < 5; ++i) feed(st, x, 4800, 3);
      report(st);
      ebur128_destroy(&st);
    }
}

static void signal_corners(void) {
  static const double odd[] = {NAN, INFINITY, -INFINITY, 1e30, -1e30, 0, 1e-30, 1e-200, 1e-310};
  int mode, where;
  size_t k;
  double *x = programme(2, 48000, 48000 * 5);
  for (mode = 63; mode <= 127; mode += 64)
    for (k = 0; k < 9; ++k)
      for (where = 0; where < 2; ++where) {
        ebur128_state *st = ebur128_init(2, 48000, mode);
        double one[2];
        one[where] = odd[k], one[1 - where] = .1;
        printf("odd %g in %d, mode %d\n", odd[k], where, mode);
        feed(st, x, 48000 * 4, 3);
        ebur128_add_frames_double(st, one, 1);
        report(st);
        ebur128_add_frames_double(st, one, 0);
        report(st);
        printf("null %d\n", ebur128_add_frames_float(st, NULL, 0));
        feed(st, x + 1000, 48000 * 4, 3);
        report(st);
        ebur128_destroy(&st);
      }
  for (k = 0; k < 9; ++k) {
    ebur128_state *st = ebur128_init(2, 48000, 63);
    size_t i;
    for (i = 0; i < 48000 * 2; ++i) x[i] = odd[k + 5 < 9 ? k + 5 : 5];
    printf("constant %zu\n", k);
    feed(st, x, 48000, 3);
    report(st);
    ebur128_destroy(&st);
  }
  { /* 300 ms of tone, short limits, zero window */
    ebur128_state *st = ebur128_init(2, 48000, 63);
    short limits[] = {-32768, 32767};
    int wide[] = {-2147483647 - 1, 2147483647};
    size_t i;
    for (i = 0; i < 14400 * 2; ++i) x[i] = .1 * sin(i / 2 * .13);
    feed(st, x, 14400, 3);
    report(st);
    ASK("window 0", ebur128_loudness_window(st, 0, &v));
    ASK("window 3000", ebur128_loudness_window(st, 3000, &v));
    ASK("window 3001", ebur128_loudness_window(st, 3001, &v));
    ASK("window max", ebur128_loudness_window(st, (unsigned long)-1, &v));
    ebur128_add_frames_short(st, limits, 1);
    report(st);
    ebur128_add_frames_int(st, wide, 1);
    report(st);
    ebur128_destroy(&st);
  }
  free(x);
}

static void multiple_corners(void) {
  static const int modes[] = {63, 63, 127, 127, 5, 1};
  ebur128_state *st[6], *some[4];
  double *x = programme(2, 48000, 48000 * 12);
  int k, a, b;
  for (k = 0; k < 6; ++k) {
    st[k] = ebur128_init(2, 48000, modes[k]);
    feed(st[k], x + k * 9000, 48000 * 8, k % 4);
  }
  ASK("none", ebur128_loudness_global_multiple(st, 0, &v));
  ASK("none", ebur128_loudness_range_multiple(st, 0, &v));
  for (a = -1; a < 6; ++a)
    for (b = -1; b < 6; ++b) {
      some[0] = a < 0 ? NULL : st[a];
      some[1] = NULL;
      some[2] = b < 0 ? NULL : st[b];
      some[3] = NULL;
      printf("several %d %d\n", a, b);
      ASK("global", ebur128_loudness_global_multiple(some, 4, &v));
      ASK("range", ebur128_loudness_range_multiple(some, 4, &v));
    }
  for (k = 0; k < 6; ++k) ebur128_destroy(&st[k]);
  free(x);
}

int main(int argc, char **argv) {
  if (argc > 2) shorter = atoi(argv[2]);
  programmes(argc > 1 ? atoi(argv[1]) : 60);
  init_corners();
  setter_corners();
  channel_corners();
  signal_corners();
  multiple_corners();
  return 0;
}
