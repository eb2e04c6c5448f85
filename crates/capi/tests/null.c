/* Null where the original would crash, windows where it would take gigabytes: exits 0 when each is
 * answered. Built with all warnings, so that it checks the header as well. */
#include <ebur128.h>
#include <stdio.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d\n", __LINE__); return 1; } } while (0)

int main(void) {
  ebur128_state *st = NULL;
  double out = 0;
  float frames[2] = {0, 0};
  ebur128_destroy(NULL);
  ebur128_destroy(&st);
  ebur128_get_version(NULL, NULL, NULL);
  CHECK(ebur128_add_frames_float(NULL, frames, 1) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_global(NULL, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_true_peak(NULL, 0, &out) != EBUR128_SUCCESS);
  CHECK(ebur128_set_channel(NULL, 0, EBUR128_LEFT) != EBUR128_SUCCESS);
  CHECK(ebur128_change_parameters(NULL, 1, 8000) != EBUR128_SUCCESS);
  CHECK(ebur128_set_max_window(NULL, 1000) != EBUR128_SUCCESS);
  CHECK(ebur128_set_max_history(NULL, 1000) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_global_multiple(NULL, 3, &out) == EBUR128_SUCCESS);
  st = ebur128_init(2, 48000, EBUR128_MODE_I | EBUR128_MODE_TRUE_PEAK | EBUR128_MODE_LRA);
  CHECK(st);
  CHECK(ebur128_add_frames_float(st, NULL, 1) != EBUR128_SUCCESS);
  CHECK(ebur128_add_frames_float(st, frames, (size_t)-1 / 4) != EBUR128_SUCCESS);
  CHECK(ebur128_loudness_momentary(st, NULL) == EBUR128_SUCCESS);
  CHECK(ebur128_set_max_window(st, 60000) == EBUR128_SUCCESS);
  CHECK(ebur128_loudness_window(st, 60000, &out) == EBUR128_SUCCESS);
  CHECK(ebur128_loudness_window(st, 60001, &out) == EBUR128_ERROR_INVALID_MODE);
  CHECK(ebur128_set_max_window(st, (unsigned long)-1) == EBUR128_ERROR_NOMEM);
  ebur128_destroy(&st);
  CHECK(!st);
  return 0;
}
