/* The pipe from C: between two threads with every kind of ends, policies, ends, errors; nothing
 * allocated by wait-free ends. */
#include "check.h"

#include <pthread.h>
#include <string.h>

/* Valgrind takes fifty times as long. */
#ifdef SHORT
#define NUMBERS 5000
#else
#define NUMBERS 200000
#endif

static aulos_pipe_config audio(size_t capacity) {
  aulos_pipe_config config;
  memset(&config, 0, sizeof config);
  config.capacity_frames = capacity;
  config.rate = 48000;
  config.channels = 2;
  config.sample = AULOS_PIPE_S16;
  return config;
}

/* Numbers from 0 on, a frame each, in chunks of varying sizes. */
struct stream {
  aulos_pipe_writer *writer;
  uint32_t frames;
  int in_place;
};

static void *write_numbers(void *argument) {
  struct stream *stream = argument;
  uint32_t next = 0, chunk[97];
  while (next < stream->frames) {
    uint32_t count = 1 + next % 97;
    if (count > stream->frames - next) count = stream->frames - next;
    if (stream->in_place) {
      void *data;
      size_t reserved;
      CHECK(aulos_pipe_reserve(stream->writer, 4 * count, &data, &reserved) == AULOS_OK);
      CHECK(reserved % 4 == 0 && reserved <= 4 * count);
      for (uint32_t i = 0; i < reserved / 4; ++i) ((uint32_t *)data)[i] = next + i;
      CHECK(aulos_pipe_commit(stream->writer, reserved) == AULOS_OK);
      next += (uint32_t)reserved / 4;
    } else {
      aulos_pipe_written written;
      for (uint32_t i = 0; i < count; ++i) chunk[i] = next + i;
      CHECK(aulos_pipe_write(stream->writer, chunk, 4 * count, &written) == AULOS_OK);
      CHECK(written.stored % 4 == 0 && written.dropped == 0);
      next += (uint32_t)written.stored / 4;
    }
  }
  aulos_pipe_fail(stream->writer, 77);
  return NULL;
}

static void two_threads(int writer_waits, int reader_waits, int in_place) {
  aulos_pipe_config config = audio(256);
  struct stream stream = {NULL, NUMBERS, in_place};
  aulos_pipe_reader *reader;
  aulos_pipe_read_result result = {0, 0, 0, 0, 0};
  aulos_pipe_status status;
  uint32_t next = 0, out[64];
  const void *data;
  pthread_t thread;
  config.writer_waits = writer_waits;
  config.reader_waits = reader_waits;
  CHECK(aulos_pipe_create(&config, &stream.writer, &reader) == AULOS_OK);
  CHECK(pthread_create(&thread, NULL, write_numbers, &stream) == 0);
  while (result.end == AULOS_PIPE_OPEN) {
    if (in_place && next % 3 == 0) {
      CHECK(aulos_pipe_peek(reader, 40, &data) == AULOS_OK);
      if (data) {
        for (uint32_t i = 0; i < 10; ++i) CHECK(((const uint32_t *)data)[i] == next + i);
        CHECK(aulos_pipe_advance(reader, 40) == AULOS_OK);
        next += 10;
        continue;
      }
    }
    CHECK(aulos_pipe_read(reader, out, sizeof out, &result) == AULOS_OK);
    CHECK(result.padded == 0 && result.skipped == 0);
    for (uint32_t i = 0; i < result.bytes / 4; ++i) CHECK(out[i] == next + i);
    next += (uint32_t)result.bytes / 4;
  }
  CHECK(result.end == AULOS_PIPE_FAILED && result.failure == 77 && next == stream.frames);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(aulos_pipe_reader_status(reader, &status) == AULOS_OK);
  CHECK(status.capacity == 1024 && status.fill == 0 && status.high_water > 0);
  CHECK(status.dropped_frames == 0 && status.padded_frames == 0);
  aulos_pipe_reader_destroy(reader);
}

static void nothing_is_allocated(void) {
  aulos_pipe_config config = audio(100);
  aulos_pipe_writer *writer;
  aulos_pipe_reader *reader;
  aulos_pipe_read_result result;
  aulos_pipe_status status;
  const void *seen;
  void *data;
  size_t reserved;
  char bytes[80];
  memset(bytes, 1, sizeof bytes);
  long before = memory_calls;
  CHECK(aulos_pipe_create(&config, &writer, &reader) == AULOS_OK);
  CHECK_ALLOCATED_SINCE(before);
  before = memory_calls;
  for (int k = 0; k < 1000; ++k) {
    CHECK(aulos_pipe_write(writer, bytes, sizeof bytes, NULL) == AULOS_OK);
    CHECK(aulos_pipe_reserve(writer, 8, &data, &reserved) == AULOS_OK && reserved == 8);
    CHECK(aulos_pipe_commit(writer, 8) == AULOS_OK);
    CHECK(aulos_pipe_peek(reader, 8, &seen) == AULOS_OK && seen);
    CHECK(aulos_pipe_advance(reader, 8) == AULOS_OK);
    CHECK(aulos_pipe_read(reader, bytes, sizeof bytes, &result) == AULOS_OK && result.bytes == 80);
    CHECK(aulos_pipe_writer_status(writer, &status) == AULOS_OK && status.fill == 0);
    CHECK(aulos_pipe_clear(writer) == AULOS_OK);
  }
  CHECK(memory_calls == before);
  aulos_pipe_finish(writer);
  CHECK(aulos_pipe_read(reader, bytes, sizeof bytes, &result) == AULOS_OK);
  CHECK(result.bytes == 0 && result.end == AULOS_PIPE_FINISHED);
  aulos_pipe_reader_destroy(reader);
}

static void policies(void) {
  aulos_pipe_config config = audio(4);
  aulos_pipe_writer *writer;
  aulos_pipe_reader *reader;
  aulos_pipe_written written;
  aulos_pipe_read_result result;
  aulos_pipe_status status;
  int16_t frames[12] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}, out[12];
  static const struct { int policy, error; size_t stored, dropped; int16_t first; } rows[] = {
    {AULOS_PIPE_BLOCK, AULOS_OK, 16, 0, 1},
    {AULOS_PIPE_ERROR, AULOS_ERROR_FULL, 0, 0, 0},
    {AULOS_PIPE_DROP_NEWEST, AULOS_OK, 16, 8, 1},
    {AULOS_PIPE_DROP_OLDEST, AULOS_OK, 16, 8, 3},
  };
  config.underrun = AULOS_PIPE_SILENCE;
  for (size_t k = 0; k < sizeof rows / sizeof rows[0]; ++k) {
    config.overflow = rows[k].policy;
    CHECK(aulos_pipe_create(&config, &writer, &reader) == AULOS_OK);
    written.stored = written.dropped = 0;
    CHECK(aulos_pipe_write(writer, frames, sizeof frames, &written) == rows[k].error);
    CHECK(written.stored == rows[k].stored && written.dropped == rows[k].dropped);
    CHECK(aulos_pipe_writer_status(writer, &status) == AULOS_OK);
    CHECK(status.dropped_frames == rows[k].dropped / 4 && status.fill == rows[k].stored);
    memset(out, 9, sizeof out);
    CHECK(aulos_pipe_read(reader, out, sizeof out, &result) == AULOS_OK);
    CHECK(result.bytes == rows[k].stored && result.bytes + result.padded == sizeof out);
    CHECK(out[0] == rows[k].first && out[11] == 0 && result.end == AULOS_PIPE_OPEN);
    CHECK(aulos_pipe_reader_status(reader, &status) == AULOS_OK);
    CHECK(status.padded_frames == result.padded / 4);
    /* What is cleared is skipped and reported; part of a frame is not stored. */
    CHECK(aulos_pipe_write(writer, frames, 7, &written) == AULOS_OK && written.stored == 4);
    CHECK(aulos_pipe_clear(writer) == AULOS_OK);
    CHECK(aulos_pipe_write(writer, frames + 2, 4, NULL) == AULOS_OK);
    CHECK(aulos_pipe_read(reader, out, 4, &result) == AULOS_OK);
    CHECK(result.bytes == 4 && result.skipped == 4 && out[0] == 2);
    aulos_pipe_reader_destroy(reader);
    CHECK(aulos_pipe_write(writer, frames, 4, NULL) == AULOS_ERROR_GONE);
    aulos_pipe_writer_destroy(writer);
  }
}

static void refuses(void) {
  aulos_pipe_config good = audio(8), config;
  aulos_pipe_writer *writer = (aulos_pipe_writer *)&good;
  aulos_pipe_reader *reader = (aulos_pipe_reader *)&good;
  aulos_pipe_read_result result;
  aulos_pipe_status status;
  const void *seen;
  void *data;
  size_t reserved;
  char bytes[64] = {0};
#define REFUSED(field, value, error) \
  do { \
    config = good; \
    config.field = value; \
    CHECK(aulos_pipe_create(&config, &writer, &reader) == error && !writer && !reader); \
  } while (0)
  REFUSED(capacity_frames, 0, AULOS_ERROR_ARGUMENT);
  REFUSED(capacity_frames, SIZE_MAX, AULOS_ERROR_MEMORY);
  REFUSED(capacity_frames, SIZE_MAX / 8, AULOS_ERROR_MEMORY);
  REFUSED(channels, 0, AULOS_ERROR_ARGUMENT);
  REFUSED(sample, -1, AULOS_ERROR_ARGUMENT);
  REFUSED(sample, 8, AULOS_ERROR_ARGUMENT);
  REFUSED(overflow, 4, AULOS_ERROR_ARGUMENT);
  REFUSED(underrun, 3, AULOS_ERROR_ARGUMENT);
  REFUSED(pause_frames, 9, AULOS_ERROR_ARGUMENT);
  REFUSED(resume_frames, 8, AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_create(NULL, &writer, &reader) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_create(&good, NULL, &reader) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_create(&good, &writer, NULL) == AULOS_ERROR_ARGUMENT && !writer);
  CHECK(aulos_pipe_create(&good, &writer, &reader) == AULOS_OK);
  CHECK(aulos_pipe_write(writer, NULL, 4, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_write(writer, bytes, SIZE_MAX, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_commit(writer, 4) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_reserve(writer, 100, &data, &reserved) == AULOS_OK && reserved == 32);
  CHECK(aulos_pipe_reserve(writer, 9, &data, &reserved) == AULOS_OK && reserved == 8);
  CHECK(aulos_pipe_commit(writer, 12) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_commit(writer, 5) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_commit(writer, 4) == AULOS_OK);
  CHECK(aulos_pipe_commit(writer, 4) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_advance(reader, 4) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_peek(reader, 8, &seen) == AULOS_OK && !seen);
  CHECK(aulos_pipe_peek(reader, 4, &seen) == AULOS_OK && seen);
  /* What is cleared meanwhile is still there. */
  CHECK(aulos_pipe_clear(writer) == AULOS_OK);
  CHECK(aulos_pipe_advance(reader, 8) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_advance(reader, 3) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_advance(reader, 4) == AULOS_OK);
  CHECK(aulos_pipe_advance(reader, 4) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_read(reader, bytes, 4, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_read(reader, NULL, 4, &result) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_read(reader, bytes, 64, &result) == AULOS_OK && result.bytes == 0);
  aulos_pipe_writer_destroy(writer);
  CHECK(aulos_pipe_read(reader, bytes, 4, &result) == AULOS_OK);
  CHECK(result.end == AULOS_PIPE_DROPPED);
  aulos_pipe_reader_destroy(reader);
  /* A wait that could never end. */
  good.reader_waits = 1;
  CHECK(aulos_pipe_create(&good, &writer, &reader) == AULOS_OK);
  CHECK(aulos_pipe_peek(reader, 33, &seen) == AULOS_ERROR_ARGUMENT);
  aulos_pipe_finish(writer);
  CHECK(aulos_pipe_peek(reader, 32, &seen) == AULOS_OK && !seen);
  aulos_pipe_reader_destroy(reader);
  CHECK(aulos_pipe_write(NULL, bytes, 4, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_reserve(NULL, 4, &data, &reserved) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_commit(NULL, 0) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_clear(NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_read(NULL, bytes, 4, &result) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_peek(NULL, 4, &seen) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_advance(NULL, 0) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_writer_status(NULL, &status) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_pipe_reader_status(NULL, &status) == AULOS_ERROR_ARGUMENT);
  aulos_pipe_finish(NULL);
  aulos_pipe_fail(NULL, 1);
  aulos_pipe_writer_destroy(NULL);
  aulos_pipe_reader_destroy(NULL);
}

int main(void) {
  for (int kind = 0; kind < 8; ++kind) two_threads(kind & 1, kind & 2, kind & 4);
  nothing_is_allocated();
  policies();
  refuses();
  puts("ok");
  return 0;
}
