/* Null where the original would crash, sizes that cannot be, windows where it would take gigabytes,
 * states in several threads: exits 0 when each is answered. Built with all warnings, so that it
 * checks the header as well. */
#include <ebur128.h>
#include <pthread.h>
#include <stdio.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d\n", __LINE__); return 1; } } while (0)

static int nulls(void) {
  ebur128_state *st = NULL;
  double out = 0;
  float frames[2] = {0, 0};
  ebur128_destroy(NULL);
  ebur128_destroy(&st);
  ebur128_get_version(NULL, NULL, NULL);
  CHECK(ebur128_add_frames_short(NULL, NULL, 1) != EBUR128_SUCCESS);
  CHECK(ebur128_add_frames_int(NULL, NULL, 1) != EBUR128_SUCCESS);
  CHECK(ebur128_add_frames_float(NULL, frames, 1) != EBUR128_SUCCESS);
  CHECK(ebur128_add_frames_double(NULL, NULL, 0) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_global(NULL, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_momentary(NULL, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_shortterm(NULL, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_window(NULL, 100, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_range(NULL, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_relative_threshold(NULL, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_sample_peak(NULL, 0, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_prev_sample_peak(NULL, 0, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_true_peak(NULL, 0, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_prev_true_peak(NULL, 0, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_set_channel(NULL, 0, EBUR128_LEFT) != EBUR128_SUCCESS);
  CHECK(ebur128_change_parameters(NULL, 1, 8000) != EBUR128_SUCCESS);
  CHECK(ebur128_set_max_window(NULL, 1000) != EBUR128_SUCCESS);
  CHECK(ebur128_set_max_history(NULL, 1000) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_global_multiple(NULL, 3, &out) == EBUR128_SUCCESS);
  CHECK(ebur128_loudness_range_multiple(NULL, (size_t)-1, &out) == EBUR128_SUCCESS);
  CHECK(ebur128_loudness_global_multiple(&st, 1, NULL) == EBUR128_SUCCESS);
  return 0;
}

/* At rates of which 100 ms are no whole number of frames, the window of the mode can be read, and no
   longer one. */
static int odd_rates(void) {
  static double frames[4 * 48000];
  unsigned long rate;
  double out = 0, again = 0;
  for (rate = 8000; rate < 48000; rate += 1601) {
    ebur128_state *st = ebur128_init(1, rate, EBUR128_MODE_S);
    CHECK(st);
    CHECK(ebur128_add_frames_double(st, frames, 4 * rate) == EBUR128_SUCCESS);
    CHECK(ebur128_loudness_window(st, 3000, &out) == EBUR128_SUCCESS);
    CHECK(ebur128_loudness_window(st, 3001, &out) == EBUR128_ERROR_INVALID_MODE);
    CHECK(ebur128_loudness_shortterm(st, &again) == EBUR128_SUCCESS);
    ebur128_destroy(&st);
    st = ebur128_init(1, rate, EBUR128_MODE_M);
    CHECK(st);
    CHECK(ebur128_loudness_window(st, 400, &out) == EBUR128_SUCCESS);
    CHECK(ebur128_loudness_window(st, 401, &out) == EBUR128_ERROR_INVALID_MODE);
    ebur128_destroy(&st);
  }
  return 0;
}

static int sizes(void) {
  ebur128_state *st = ebur128_init(2, 48000, EBUR128_MODE_I | EBUR128_MODE_TRUE_PEAK | EBUR128_MODE_LRA);
  double out = 0;
  double frames[2] = {0, 0};
  size_t k, absurd[] = {(size_t)-1, (size_t)-1 / 2, (size_t)-1 / 4};
  CHECK(st);
  CHECK(ebur128_add_frames_float(st, NULL, 1) != EBUR128_SUCCESS);
  for (k = 0; k < 3; ++k) {
    CHECK(ebur128_add_frames_short(st, (short *)frames, absurd[k]) != EBUR128_SUCCESS);
    CHECK(ebur128_add_frames_int(st, (int *)frames, absurd[k]) != EBUR128_SUCCESS);
    CHECK(ebur128_add_frames_float(st, (float *)frames, absurd[k]) != EBUR128_SUCCESS);
    CHECK(ebur128_add_frames_double(st, frames, absurd[k]) != EBUR128_SUCCESS);
    CHECK(ebur128_loudness_global_multiple(&st, absurd[k], &out) != EBUR128_SUCCESS);
    CHECK(ebur128_loudness_range_multiple(&st, absurd[k], &out) != EBUR128_SUCCESS);
  }
  CHECK(ebur128_loudness_momentary(st, NULL) == EBUR128_SUCCESS);
  CHECK(ebur128_set_max_window(st, 60000) == EBUR128_SUCCESS);
  CHECK(ebur128_loudness_window(st, 60000, &out) == EBUR128_SUCCESS);
  CHECK(ebur128_loudness_window(st, 60001, &out) == EBUR128_ERROR_INVALID_MODE);
  CHECK(ebur128_set_max_window(st, (unsigned long)-1) == EBUR128_ERROR_NOMEM);
  ebur128_destroy(&st);
  CHECK(!st);
  /* An hour at the highest rate would be 81 GB: refused, by either way that leads there. */
  st = ebur128_init(1, 2822400, EBUR128_MODE_M);
  CHECK(st);
  CHECK(ebur128_set_max_window(st, 3600000) == EBUR128_ERROR_NOMEM);
  CHECK(ebur128_loudness_window(st, 400, &out) == EBUR128_SUCCESS);
  ebur128_destroy(&st);
  st = ebur128_init(1, 100, EBUR128_MODE_M);
  CHECK(st);
  CHECK(ebur128_set_max_window(st, 3600000) == EBUR128_SUCCESS);
  CHECK(ebur128_change_parameters(st, 1, 2822400) == EBUR128_ERROR_NOMEM);
  CHECK(st->samplerate == 100);
  CHECK(ebur128_change_parameters(st, 1, 200) == EBUR128_SUCCESS);
  CHECK(st->samplerate == 200);
  ebur128_destroy(&st);
  return 0;
}

/* A state belongs to one thread, several states to several. */
static void *thread(void *seed) {
  ebur128_state *st = ebur128_init(2, 8000, EBUR128_MODE_I | EBUR128_MODE_TRUE_PEAK | EBUR128_MODE_LRA);
  static double answers[4];
  double *out = &answers[*(int *)seed];
  short frames[2 * 800];
  int k, call;
  for (call = 0; call < 50; ++call) {
    for (k = 0; k < 1600; ++k) frames[k] = (short)((k * 7919 + call * 104729) % 20000 - 10000);
    ebur128_add_frames_short(st, frames, 800);
  }
  ebur128_loudness_global(st, out);
  ebur128_destroy(&st);
  return out;
}

static int threads(void) {
  pthread_t all[4];
  int k, seeds[4] = {0, 1, 2, 3};
  void *out, *first = NULL;
  for (k = 0; k < 4; ++k) CHECK(pthread_create(&all[k], NULL, thread, &seeds[k]) == 0);
  for (k = 0; k < 4; ++k) {
    CHECK(pthread_join(all[k], &out) == 0);
    if (!first) first = out;
    CHECK(*(double *)out == *(double *)first && *(double *)out < -5);
  }
  return 0;
}

int main(void) { return nulls() || sizes() || odd_rates() || threads(); }
