/* Notifications from C: order and values across threads, cancel, pending, handle now, stop, misuse;
 * nothing allocated and no system call on the real-time side. */
#define _DEFAULT_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/seccomp.h>

/* Valgrind takes fifty times as long. */
#ifdef SHORT
enum { CHANGES = 2000 };
#else
enum { CHANGES = 50000 };
#endif

static aulos_dispatcher *new_dispatcher(int strategy, uint64_t interval_ns) {
  aulos_dispatcher *dispatcher;
  CHECK(aulos_dispatcher_create(strategy, interval_ns, &dispatcher) == AULOS_OK);
  return dispatcher;
}

static aulos_notifier *new_notifier(aulos_dispatcher *dispatcher, uint64_t period_ns) {
  aulos_notifier *notifier;
  CHECK(aulos_notifier_create(dispatcher, period_ns, &notifier) == AULOS_OK);
  return notifier;
}

static char served[300];

/* Callbacks write their letter. */
static void serve(void *letter) { strncat(served, letter, 1); }

static aulos_callback new_callback(aulos_dispatcher *dispatcher, char *letter, int each) {
  aulos_callback callback = 0;
  CHECK(aulos_dispatcher_register(dispatcher, serve, letter, each, &callback) == AULOS_OK);
  CHECK(callback != 0);
  return callback;
}

static void on_one_thread(void) {
  aulos_dispatcher *dispatcher = new_dispatcher(AULOS_DISPATCH_EVENT, 0);
  aulos_callback a = new_callback(dispatcher, "a", 0), b = new_callback(dispatcher, "b", 0);
  aulos_callback e = new_callback(dispatcher, "e", 1);
  aulos_notifier *one = new_notifier(dispatcher, 0), *two = new_notifier(dispatcher, 0);
  aulos_callback sent[] = {b, a, b, e, a, e};
  uint64_t next = 0;
  int flag = -1;
  for (size_t i = 0; i < 6; ++i) {
    aulos_notifier *notifier = i % 2 ? one : two;
    CHECK(aulos_notifier_prefetch(notifier) == AULOS_OK);
    CHECK(aulos_notifier_notify(notifier, sent[i]) == AULOS_OK);
  }
  CHECK(aulos_dispatcher_dispatch(dispatcher, aulos_clock_ns(), &next) == AULOS_OK);
  CHECK(strcmp(served, "baee") == 0 && next == UINT64_MAX);

  served[0] = 0;
  for (size_t i = 0; i < 6; ++i) CHECK(aulos_notifier_notify(one, sent[i]) == AULOS_OK);
  CHECK(aulos_dispatcher_is_pending(dispatcher, a, &flag) == AULOS_OK && flag == 1);
  CHECK(aulos_dispatcher_cancel(dispatcher, a) == AULOS_OK);
  CHECK(aulos_dispatcher_is_pending(dispatcher, a, &flag) == AULOS_OK && flag == 0);
  CHECK(aulos_dispatcher_handle_now(dispatcher, e, &flag) == AULOS_OK && flag == 1);
  CHECK(aulos_dispatcher_handle_now(dispatcher, e, &flag) == AULOS_OK && flag == 0);
  CHECK(aulos_dispatcher_handle_now(dispatcher, a, NULL) == AULOS_OK);
  CHECK(strcmp(served, "ee") == 0);
  CHECK(aulos_dispatcher_unregister(dispatcher, b) == AULOS_OK);
  CHECK(aulos_dispatcher_unregister(dispatcher, b) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_notifier_notify(one, b) == AULOS_OK);
  CHECK(aulos_notifier_notify(one, 0) == AULOS_OK);
  CHECK(aulos_notifier_notify(one, UINT64_MAX) == AULOS_OK);
  aulos_notifier_destroy(two);
  CHECK(aulos_notifier_notify(one, a) == AULOS_OK);
  aulos_notifier_destroy(one);
  CHECK(aulos_dispatcher_dispatch(dispatcher, 0, NULL) == AULOS_OK);
  CHECK(strcmp(served, "eea") == 0);

  /* More than the queue holds: merged, not lost. */
  served[0] = 0;
  one = new_notifier(dispatcher, 0);
  for (int i = 0; i < 256; ++i) CHECK(aulos_notifier_notify(one, a) == AULOS_OK);
  CHECK(aulos_notifier_notify(one, e) == AULOS_OK);
  CHECK(aulos_dispatcher_dispatch(dispatcher, 0, NULL) == AULOS_OK);
  CHECK(strcmp(served, "ae") == 0);
  CHECK(aulos_dispatcher_destroy(dispatcher) == AULOS_OK);
  CHECK(aulos_notifier_notify(one, a) == AULOS_OK && aulos_notifier_wake(one) == AULOS_OK);
  aulos_notifier_destroy(one);
}

/* Every change of a parameter, with its value, from a thread that computes and one that plays. */
struct changes {
  aulos_dispatcher *dispatcher;
  aulos_notifier *notifier;
  aulos_callback callback;
  aulos_pipe_writer *writer;
  aulos_pipe_reader *reader;
  uint32_t seen;
};

static void *change(void *argument) {
  struct changes *changes = argument;
  for (uint32_t value = 1; value <= CHANGES; ++value) {
    while (aulos_pipe_write(changes->writer, &value, 4, NULL) == AULOS_ERROR_FULL) {
      CHECK(aulos_notifier_wake(changes->notifier) == AULOS_OK);
      usleep(100);
    }
    CHECK(aulos_notifier_notify(changes->notifier, changes->callback) == AULOS_OK);
    CHECK(aulos_notifier_callback_ended(changes->notifier, aulos_clock_ns()) == AULOS_OK);
  }
  CHECK(aulos_notifier_wake(changes->notifier) == AULOS_OK);
  return NULL;
}

static void update(void *argument) {
  struct changes *changes = argument;
  aulos_pipe_read_result result;
  uint32_t value;
  while (aulos_pipe_read(changes->reader, &value, 4, &result) == AULOS_OK && result.bytes == 4)
    CHECK(value == ++changes->seen);
  if (changes->seen == CHANGES) CHECK(aulos_dispatcher_stop(changes->dispatcher) == AULOS_OK);
}

static void every_change_arrives_in_order(int strategy, uint64_t interval_ns, uint64_t period_ns) {
  struct changes changes = {0};
  aulos_pipe_config config = {0};
  pthread_t thread;
  config.capacity_frames = 4 * 100;
  config.channels = 4;
  config.overflow = AULOS_PIPE_ERROR;
  CHECK(aulos_pipe_create(&config, &changes.writer, &changes.reader) == AULOS_OK);
  changes.dispatcher = new_dispatcher(strategy, interval_ns);
  changes.notifier = new_notifier(changes.dispatcher, period_ns);
  CHECK(aulos_dispatcher_register(changes.dispatcher, update, &changes, 0, &changes.callback) ==
        AULOS_OK);
  CHECK(pthread_create(&thread, NULL, change, &changes) == 0);
  CHECK(aulos_dispatcher_run(changes.dispatcher) == AULOS_OK);
  CHECK(changes.seen == CHANGES);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(aulos_dispatcher_destroy(changes.dispatcher) == AULOS_OK);
  aulos_notifier_destroy(changes.notifier);
  aulos_pipe_writer_destroy(changes.writer);
  aulos_pipe_reader_destroy(changes.reader);
}

static void nothing_is_allocated(void) {
  aulos_dispatcher *dispatcher = new_dispatcher(AULOS_DISPATCH_PHASE_LOCKED, 0);
  aulos_callback callback = new_callback(dispatcher, "a", 0);
  long before = memory_calls;
  aulos_notifier *notifier = new_notifier(dispatcher, 5333333);
  CHECK_ALLOCATED_SINCE(before);
  before = memory_calls;
  for (int i = 0; i < 1000; ++i) {
    CHECK(aulos_notifier_prefetch(notifier) == AULOS_OK);
    CHECK(aulos_notifier_notify(notifier, callback) == AULOS_OK);
    CHECK(aulos_notifier_callback_ended(notifier, aulos_clock_ns()) == AULOS_OK);
  }
  CHECK(memory_calls == before);
#ifndef SHORT
  /* In the strict mode the kernel kills a process at every system call but its exit (and read,
   * write and the return of a signal), and at a look at the processor's clock. The first child
   * shows that it does. */
  for (int quiet = 0; quiet <= 1; ++quiet) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
      if (!quiet) syscall(SYS_getppid);
      for (int i = 0; i < 1000; ++i) {
        aulos_notifier_prefetch(notifier);
        aulos_notifier_notify(notifier, callback);
        aulos_notifier_callback_ended(notifier, (uint64_t)i);
      }
      syscall(SYS_exit, 7);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (quiet) CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    else CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
#endif
  aulos_notifier_destroy(notifier);
  CHECK(aulos_dispatcher_destroy(dispatcher) == AULOS_OK);
}

static int calls_back;

/* Every function that uses the dispatcher, from its own callback or another thread. */
static void uses_it_now(aulos_dispatcher *dispatcher) {
  aulos_callback callback = 5;
  aulos_notifier *notifier;
  uint64_t next = 5;
  int flag = 5;
  CHECK(aulos_dispatcher_register(dispatcher, serve, NULL, 0, &callback) == AULOS_ERROR_BUSY);
  CHECK(aulos_dispatcher_unregister(dispatcher, 1) == AULOS_ERROR_BUSY);
  CHECK(aulos_dispatcher_dispatch(dispatcher, 0, &next) == AULOS_ERROR_BUSY);
  CHECK(aulos_dispatcher_run(dispatcher) == AULOS_ERROR_BUSY);
  CHECK(aulos_dispatcher_cancel(dispatcher, 1) == AULOS_ERROR_BUSY);
  CHECK(aulos_dispatcher_is_pending(dispatcher, 1, &flag) == AULOS_ERROR_BUSY);
  CHECK(aulos_dispatcher_handle_now(dispatcher, 1, &flag) == AULOS_ERROR_BUSY);
  CHECK(aulos_notifier_create(dispatcher, 0, &notifier) == AULOS_ERROR_BUSY && !notifier);
  CHECK(aulos_dispatcher_destroy(dispatcher) == AULOS_ERROR_BUSY);
  CHECK(callback == 5 && next == 5 && flag == 5);
}

static void *from_another_thread(void *dispatcher) {
  uses_it_now(dispatcher);
  return NULL;
}

static void from_the_callback(void *dispatcher) {
  pthread_t thread;
  uses_it_now(dispatcher);
  CHECK(pthread_create(&thread, NULL, from_another_thread, dispatcher) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(aulos_dispatcher_stop(dispatcher) == AULOS_OK);
  ++calls_back;
}

static void refuses(void) {
  aulos_dispatcher *dispatcher = (aulos_dispatcher *)served;
  aulos_notifier *notifier = (aulos_notifier *)served, *many[64];
  aulos_callback callback = 5;
  int flag = 5;
  static const struct { int strategy; uint64_t interval_ns; } rows[] = {
    {-1, 0}, {3, 0}, {0, 1}, {1, 0}, {1, 9999}, {1, 10000000001}, {1, UINT64_MAX}, {2, 10000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
    CHECK(aulos_dispatcher_create(rows[i].strategy, rows[i].interval_ns, &dispatcher) ==
          AULOS_ERROR_ARGUMENT && !dispatcher);
  CHECK(aulos_dispatcher_create(0, 0, NULL) == AULOS_ERROR_ARGUMENT);

  dispatcher = new_dispatcher(AULOS_DISPATCH_PHASE_LOCKED, 0);
  CHECK(aulos_dispatcher_register(dispatcher, NULL, NULL, 0, &callback) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_register(dispatcher, serve, NULL, 0, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_unregister(dispatcher, 0) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_is_pending(dispatcher, 0, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_is_pending(dispatcher, 0, &flag) == AULOS_OK && flag == 0);
  CHECK(aulos_dispatcher_cancel(dispatcher, UINT64_MAX) == AULOS_OK);
  CHECK(aulos_dispatcher_handle_now(dispatcher, UINT64_MAX, &flag) == AULOS_OK && flag == 0);
  CHECK(aulos_notifier_create(dispatcher, 0, NULL) == AULOS_ERROR_ARGUMENT);
  for (int i = 0; i < 64; ++i) many[i] = new_notifier(dispatcher, i ? UINT64_MAX : 1);
  CHECK(aulos_notifier_create(dispatcher, 0, &notifier) == AULOS_ERROR_FULL && !notifier);
  for (int i = 0; i < 64; ++i) aulos_notifier_destroy(many[i]);
  CHECK(aulos_dispatcher_dispatch(dispatcher, UINT64_MAX, NULL) == AULOS_OK);
  notifier = new_notifier(dispatcher, 0);
  for (int i = 0; i < 255; ++i) new_callback(dispatcher, "x", 0);
  CHECK(aulos_dispatcher_register(dispatcher, from_the_callback, dispatcher, 0, &callback) ==
        AULOS_OK);
  CHECK(aulos_dispatcher_register(dispatcher, serve, NULL, 0, &callback) == AULOS_ERROR_FULL);
  for (int k = 0; k < 2; ++k) {
    CHECK(aulos_notifier_notify(notifier, callback) == AULOS_OK);
    if (k) CHECK(aulos_dispatcher_handle_now(dispatcher, callback, &flag) == AULOS_OK && flag);
    CHECK(aulos_dispatcher_run(dispatcher) == AULOS_OK);
  }
  CHECK(calls_back == 2);
  aulos_notifier_destroy(notifier);
  CHECK(aulos_dispatcher_destroy(dispatcher) == AULOS_OK);

  CHECK(aulos_dispatcher_destroy(NULL) == AULOS_OK);
  CHECK(aulos_dispatcher_register(NULL, serve, NULL, 0, &callback) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_unregister(NULL, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_dispatch(NULL, 0, NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_run(NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_stop(NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_cancel(NULL, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_is_pending(NULL, 1, &flag) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_dispatcher_handle_now(NULL, 1, &flag) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_notifier_create(NULL, 0, &notifier) == AULOS_ERROR_ARGUMENT && !notifier);
  CHECK(aulos_notifier_prefetch(NULL) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_notifier_notify(NULL, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_notifier_callback_ended(NULL, 1) == AULOS_ERROR_ARGUMENT);
  CHECK(aulos_notifier_wake(NULL) == AULOS_ERROR_ARGUMENT);
  aulos_notifier_destroy(NULL);
}

int main(void) {
  on_one_thread();
  every_change_arrives_in_order(AULOS_DISPATCH_EVENT, 0, 0);
  every_change_arrives_in_order(AULOS_DISPATCH_INTERVAL, 1000000, 0);
  every_change_arrives_in_order(AULOS_DISPATCH_PHASE_LOCKED, 0, 1333333);
  nothing_is_allocated();
  refuses();
  puts("ok");
  return 0;
}
