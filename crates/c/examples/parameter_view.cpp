// Automation changes a parameter on the audio thread, and a view on the user interface's thread
// shows it. The audio thread writes the change into a pipe and notifies; it makes no system call.
//
// First the host plays in real time, then it computes faster than real time, as when it exports a
// file: then the audio thread may wait, and every change must arrive, in order.
//
//   c++ -std=c++17 parameter_view.cpp $(pkg-config --cflags --libs libaulos) -pthread

#include <aulos.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

namespace {

constexpr uint32_t rate = 48000, frames = 256;
constexpr uint64_t period_ns = uint64_t{frames} * 1'000'000'000 / rate;

void check(int error) {
  if (error != AULOS_OK) throw std::runtime_error(aulos_error_text(error));
}

template <auto Destroy>
struct Deleter {
  template <class T> void operator()(T *object) const { Destroy(object); }
};
using Dispatcher = std::unique_ptr<aulos_dispatcher, Deleter<aulos_dispatcher_destroy>>;
using Notifier = std::unique_ptr<aulos_notifier, Deleter<aulos_notifier_destroy>>;
using Writer = std::unique_ptr<aulos_pipe_writer, Deleter<aulos_pipe_writer_destroy>>;
using Reader = std::unique_ptr<aulos_pipe_reader, Deleter<aulos_pipe_reader_destroy>>;

struct Change {
  uint32_t number; // 1, 2, ... of all changes
  float gain;
};

// Thread of the user interface.
class View {
public:
  View(aulos_dispatcher *dispatcher, Reader changes, uint32_t expected)
      : dispatcher(dispatcher), changes(std::move(changes)), expected(expected) {
    check(aulos_dispatcher_register(dispatcher, &View::update, this, 0, &callback));
  }

  View(const View &) = delete;
  View &operator=(const View &) = delete;

  ~View() { aulos_dispatcher_unregister(dispatcher, callback); }

  // To be notified after changes were written.
  aulos_callback id() const { return callback; }
  uint32_t shown() const { return latest.number; }
  bool in_order() const { return ordered; }

private:
  // No exception may pass the C function that calls it.
  static void update(void *self) noexcept { static_cast<View *>(self)->read_changes(); }

  void read_changes() {
    Change change;
    aulos_pipe_read_result result;
    while (aulos_pipe_read(changes.get(), &change, sizeof change, &result) == AULOS_OK &&
           result.bytes == sizeof change) {
      ordered = ordered && change.number == latest.number + 1;
      latest = change;
    }
    // A program would draw `latest.gain` here, once for all changes since the last time.
    if (latest.number == expected) aulos_dispatcher_stop(dispatcher);
  }

  aulos_dispatcher *dispatcher;
  Reader changes;
  const uint32_t expected;
  aulos_callback callback = 0;
  Change latest{0, 1};
  bool ordered = true;
};

// Audio thread.
class Processor {
public:
  Processor(Notifier notifier, Writer changes, aulos_callback view)
      : notifier(std::move(notifier)), changes(std::move(changes)), view(view) {}

  // Real-time, unless `offline`.
  void process(float *samples, bool offline) {
    aulos_notifier_prefetch(notifier.get());
    for (uint32_t frame = 0; frame < frames; ++frame) {
      if (frame % change_frames == 0) change_gain(offline);
      samples[frame] *= gain;
    }
    aulos_notifier_callback_ended(notifier.get(), aulos_clock_ns());
    if (offline) aulos_notifier_wake(notifier.get());
  }

  static constexpr uint32_t change_frames = 64;

private:
  void change_gain(bool offline) {
    gain = 1 - static_cast<float>(next % 100) / 200;
    const Change change{next, gain};
    int error;
    while ((error = aulos_pipe_write(changes.get(), &change, sizeof change, nullptr)) ==
               AULOS_ERROR_FULL && offline) {
      aulos_notifier_wake(notifier.get());
      std::this_thread::yield();
    }
    if (error != AULOS_OK) return; // in real time: 1,024 changes were not read yet; try again later
    ++next;
    aulos_notifier_notify(notifier.get(), view);
  }

  Notifier notifier;
  Writer changes;
  const aulos_callback view;
  float gain = 1;
  uint32_t next = 1;
};

// Returns whether the view showed every change, in order.
bool run(uint32_t callbacks, bool offline) {
  aulos_pipe_config config{};
  config.capacity_frames = 1024;
  config.channels = sizeof(Change);
  config.overflow = AULOS_PIPE_ERROR;
  aulos_pipe_writer *writer;
  aulos_pipe_reader *reader;
  check(aulos_pipe_create(&config, &writer, &reader));
  Writer changes(writer);
  Reader changed(reader);

  aulos_dispatcher *new_dispatcher;
  check(aulos_dispatcher_create(AULOS_DISPATCH_PHASE_LOCKED, 0, &new_dispatcher));
  Dispatcher dispatcher(new_dispatcher);
  aulos_notifier *notifier;
  check(aulos_notifier_create(dispatcher.get(), period_ns, &notifier));

  const uint32_t expected = callbacks * (frames / Processor::change_frames);
  View view(dispatcher.get(), std::move(changed), expected);
  Processor processor(Notifier(notifier), std::move(changes), view.id());
  std::thread audio([&] {
    float samples[frames] = {};
    auto due = std::chrono::steady_clock::now();
    for (uint32_t k = 0; k < callbacks; ++k) {
      processor.process(samples, offline);
      due += std::chrono::nanoseconds(period_ns);
      if (!offline) std::this_thread::sleep_until(due);
    }
  });
  check(aulos_dispatcher_run(dispatcher.get()));
  audio.join();
  return view.shown() == expected && view.in_order();
}

} // namespace

int main() {
  const bool played = run(50, false);
  const bool exported = run(20000, true);
  std::puts(played && exported ? "ok" : "changes are missing or out of order");
  return played && exported ? 0 : 1;
}
