/* The live normalizer from C: figures, delay, settings, errors; nothing allocated while it runs. */
#include "check.h"

#include <math.h>
#include <string.h>

/* Valgrind takes fifty times as long. */
#ifdef SHORT
enum { RATE = 48000, FRAMES = 480, BLOCKS = 1000 };
#else
enum { RATE = 48000, FRAMES = 480, BLOCKS = 2000 };
#endif

static float block[2 * FRAMES], out[2 * FRAMES];

/* Block k of a tone of -26 LUFS. */
static void fill(float *samples, int k) {
  for (int i = 0; i < FRAMES; ++i)
    samples[2 * i] = samples[2 * i + 1] = 0.05f * sinf(0.13f * (float)(k * FRAMES + i));
}

static void reaches_the_target(int mode, size_t delay, int in_place) {
  aulos_normalizer_config config;
  aulos_normalizer *normalizer;
  aulos_normalizer_status status;
  size_t delayed, all = 0;
  CHECK(aulos_normalizer_config_init(&config, "stream-16") == AULOS_OK);
  CHECK(config.rate == RATE && config.channels == 2 && config.target_lufs == -16);
  config.mode = mode;
  long before = memory_calls;
  CHECK(aulos_normalizer_create(&config, &normalizer) == AULOS_OK);
  CHECK_ALLOCATED_SINCE(before);
  CHECK(aulos_normalizer_delay(normalizer) == delay);
  before = memory_calls;
  for (int k = 0; k < BLOCKS; ++k) {
    fill(block, k);
    if (in_place) {
      CHECK(aulos_normalizer_process(normalizer, block, FRAMES) == AULOS_OK);
      memcpy(out, block, sizeof out);
    } else {
      CHECK(aulos_normalizer_process_to(normalizer, block, out, FRAMES) == AULOS_OK);
    }
    for (int i = 0; k * FRAMES + i < (int)delay && i < FRAMES; ++i) CHECK(out[2 * i] == 0);
  }
  CHECK(aulos_normalizer_get_status(normalizer, &status) == AULOS_OK);
  CHECK(fabs(status.input.integrated_lufs + 26) < 0.5 && status.rejected == 0);
  CHECK(fabs(status.output.short_term_lufs + 16) < 0.5 && status.output.true_peak_dbtp < -0.9);
  CHECK(fabs(status.gain_db - 10) < 1 && status.reduction_db <= 0 && status.clamped == 0);
  /* Another target, while it runs. */
  config.target_lufs = -20;
  CHECK(aulos_normalizer_set(normalizer, &config) == AULOS_OK);
  config.rate = 44100;
  CHECK(aulos_normalizer_set(normalizer, &config) == AULOS_ERROR_ARGUMENT);
  config.rate = RATE;
  config.target_lufs = 3;
  CHECK(aulos_normalizer_set(normalizer, &config) == AULOS_ERROR_ARGUMENT);
  block[0] = NAN;
  CHECK(aulos_normalizer_process(normalizer, block, 1) == AULOS_OK);
  for (int k = 0; k < BLOCKS; ++k) {
    fill(block, k);
    CHECK(aulos_normalizer_process(normalizer, block, FRAMES) == AULOS_OK);
  }
  CHECK(aulos_normalizer_get_status(normalizer, &status) == AULOS_OK);
  CHECK(fabs(status.output.short_term_lufs + 20) < 0.5 && status.rejected == 1);
  do {
    CHECK(aulos_normalizer_drain(normalizer, out, FRAMES, &delayed) == AULOS_OK);
    all += delayed;
  } while (delayed > 0);
  CHECK(all == delay);
  CHECK(aulos_normalizer_interrupt(normalizer) == AULOS_OK);
  CHECK(memory_calls == before);
  aulos_normalizer_destroy(normalizer);
}

static void refuses(void) {
  aulos_normalizer_config good, config;
  aulos_normalizer *normalizer = (aulos_normalizer *)&good;
  aulos_normalizer_status status;
  size_t delayed;
  CHECK(aulos_normalizer_config_init(NULL, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_config_init(&good, "loud") == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_config_init(&good, "\xff") == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_config_init(&good, NULL) == AULOS_OK && good.target_lufs == -23);
  CHECK(aulos_normalizer_create(&good, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_create(NULL, &normalizer) == AULOS_ERROR_ARGUMENT && !normalizer);
#define REFUSED(field, value) \
  do { \
    config = good; \
    config.field = value; \
    CHECK(aulos_normalizer_create(&config, &normalizer) == AULOS_ERROR_ARGUMENT && !normalizer); \
  } while (0)
  REFUSED(rate, 0);
  REFUSED(rate, 4000);
  REFUSED(rate, UINT32_MAX);
  REFUSED(channels, 0);
  REFUSED(channels, 65);
  REFUSED(channels, UINT32_MAX);
  REFUSED(mode, -1);
  REFUSED(mode, 4);
  REFUSED(dual_mono, 1); /* with two channels */
  REFUSED(target_lufs, 0);
  REFUSED(target_lufs, NAN);
  REFUSED(ceiling_dbtp, INFINITY);
  REFUSED(memory_s, 9);
  CHECK(aulos_normalizer_create(&good, &normalizer) == AULOS_OK);
  CHECK(aulos_normalizer_process(normalizer, NULL, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_process(normalizer, NULL, 0) == AULOS_OK);
  CHECK(aulos_normalizer_process(normalizer, block, SIZE_MAX) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_process(normalizer, block, SIZE_MAX / 4) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_process(normalizer, (float *)((char *)block + 1), 1) ==
        AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_process_to(normalizer, block, NULL, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_process_to(normalizer, NULL, block, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_drain(normalizer, block, 1, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_get_status(normalizer, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_get_status(normalizer, &status) == AULOS_OK);
  CHECK(status.input.integrated_lufs == -HUGE_VAL && status.output.true_peak_dbtp == -HUGE_VAL);
  CHECK(aulos_normalizer_set(normalizer, NULL) == AULOS_ERROR_ARGUMENT);
  aulos_normalizer_destroy(normalizer);
  CHECK(aulos_normalizer_process(NULL, block, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_process_to(NULL, block, out, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_drain(NULL, block, 1, &delayed) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_set(NULL, &good) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_interrupt(NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_get_status(NULL, &status) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_normalizer_delay(NULL) == 0);
  aulos_normalizer_destroy(NULL);
}

/* The two buffers may overlap: the input is a part of the output, shifted by a frame. */
static void overlaps(void) {
  aulos_normalizer_config config;
  aulos_normalizer *one, *two;
  float shifted[2 * FRAMES + 2];
  CHECK(aulos_normalizer_config_init(&config, NULL) == AULOS_OK);
  config.mode = AULOS_NORMALIZER_LOW;
  CHECK(aulos_normalizer_create(&config, &one) == AULOS_OK);
  CHECK(aulos_normalizer_create(&config, &two) == AULOS_OK);
  for (int k = 0; k < 20; ++k) {
    fill(block, k);
    memcpy(shifted + 2, block, sizeof block);
    CHECK(aulos_normalizer_process(one, block, FRAMES) == AULOS_OK);
    CHECK(aulos_normalizer_process_to(two, shifted + 2, shifted, FRAMES) == AULOS_OK);
    CHECK(memcmp(shifted, block, sizeof block) == 0);
  }
  aulos_normalizer_destroy(one);
  aulos_normalizer_destroy(two);
}

int main(void) {
  CHECK(strcmp(aulos_version(), VERSION) == 0);
  for (int error = -6; error <= 1; ++error) CHECK(strlen(aulos_error_text(error)) > 5);
  reaches_the_target(AULOS_NORMALIZER_FULL, 3 * RATE, 1);
  reaches_the_target(AULOS_NORMALIZER_MID, RATE * 2 / 5, 0);
  refuses();
  overlaps();
  puts("ok");
  return 0;
}
