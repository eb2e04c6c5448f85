/* What the test programs share: a check that names its line, and a count of the calls that manage
 * memory, the library's included, because the program's functions replace those of libc. */
#ifndef CHECK_H_
#define CHECK_H_

#include <aulos.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) \
  do { \
    if (!(what)) { \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
      exit(1); \
    } \
  } while (0)

static atomic_long memory_calls;

#ifdef COUNT_MEMORY_CALLS
/* The count sees the library, or it would prove nothing. */
#define CHECK_ALLOCATED_SINCE(before) CHECK(memory_calls > (before))
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
void *malloc(size_t size) { ++memory_calls; return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { ++memory_calls; return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { ++memory_calls; return __libc_realloc(old, size); }
void free(void *old) { ++memory_calls; __libc_free(old); }
int posix_memalign(void **out, size_t align, size_t size) {
  ++memory_calls;
  *out = __libc_memalign(align, size);
  return *out ? 0 : 12;
}
#else
#define CHECK_ALLOCATED_SINCE(before) (void)(before)
#endif

#endif
