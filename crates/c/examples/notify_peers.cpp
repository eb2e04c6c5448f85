// How long a change on the audio thread takes to reach a view, and what it costs the audio thread:
// notify beside what programs do instead.
//
//   c++ -std=c++17 -O2 notify_peers.cpp $(pkg-config --cflags --libs libaulos) -pthread
//   ./a.out [CHANGES [PICTURE.svg]]     10,000 changes per method: five minutes
//
// An audio callback of 30 us every 256 frames at 48 kHz changes something at a random moment. Every
// change counts, from there to the view's update. Methods take turns in rounds of 1,000 changes.
// The audio thread has SCHED_FIFO 50 and helping threads have 40 where the system grants it; the
// view's thread has the ordinary priority. The cost includes one look at the clock.

#include <aulos.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t period_ns = 256 * 1'000'000'000ull / 48000, work_ns = 30'000;
constexpr size_t round_changes = 1000;

bool set_priority(int priority) {
  const sched_param parameters{priority};
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters) == 0;
}

void sleep_until(uint64_t at_ns) {
  const auto left = static_cast<int64_t>(at_ns - aulos_clock_ns());
  if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
}

// Wakes one thread that waits for it.
class Event {
public:
  void set() {
    { std::lock_guard lock(mutex); is_set = true; }
    condition.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex);
    condition.wait(lock, [this] { return is_set; });
    is_set = false;
  }

private:
  std::mutex mutex;
  std::condition_variable condition;
  bool is_set = false;
};

// The user interface's thread of most toolkits: runs what is posted.
class MessageLoop {
public:
  MessageLoop() : thread([this] { run(); }) {}
  ~MessageLoop() {
    post(nullptr);
    thread.join();
  }
  void post(std::function<void()> message) {
    { std::lock_guard lock(mutex); messages.push_back(std::move(message)); }
    condition.notify_one();
  }

private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex);
      condition.wait(lock, [this] { return !messages.empty(); });
      const auto message = std::move(messages.front());
      messages.pop_front();
      lock.unlock();
      if (!message) return;
      message();
    }
  }

  std::mutex mutex;
  std::condition_variable condition;
  std::deque<std::function<void()>> messages;
  std::thread thread;
};

using Update = std::function<void()>;

// A way from the audio thread to the view; its constructor starts the threads.
struct Method {
  virtual ~Method() = default;
  virtual void begin_callback() {}
  virtual void notify() = 0;
  virtual void end_callback() {}
};

void check(int error) {
  if (error != AULOS_OK) throw std::runtime_error(aulos_error_text(error));
}

// The dispatcher's thread runs `update`.
class Notify : public Method {
public:
  Notify(Update update, int priority) : update(std::move(update)) {
    check(aulos_dispatcher_create(AULOS_DISPATCH_PHASE_LOCKED, 0, &dispatcher));
    check(aulos_dispatcher_register(
        dispatcher, [](void *self) { static_cast<Notify *>(self)->update(); }, this, 0, &view));
    check(aulos_notifier_create(dispatcher, period_ns, &notifier));
    thread = std::thread([this, priority] {
      if (priority) set_priority(priority);
      check(aulos_dispatcher_run(dispatcher));
    });
  }
  ~Notify() override {
    aulos_dispatcher_stop(dispatcher);
    thread.join();
    aulos_dispatcher_dispatch(dispatcher, aulos_clock_ns(), nullptr);
    aulos_dispatcher_destroy(dispatcher);
    aulos_notifier_destroy(notifier);
  }
  void begin_callback() override { aulos_notifier_prefetch(notifier); }
  void notify() override { aulos_notifier_notify(notifier, view); }
  void end_callback() override { aulos_notifier_callback_ended(notifier, aulos_clock_ns()); }

private:
  Update update;
  aulos_dispatcher *dispatcher;
  aulos_notifier *notifier;
  aulos_callback view;
  std::thread thread;
};

class NotifyThenPost : public Method {
public:
  explicit NotifyThenPost(const Update &update)
      : notifier([this, update] { loop.post(update); }, 40) {}
  void begin_callback() override { notifier.begin_callback(); }
  void notify() override { notifier.notify(); }
  void end_callback() override { notifier.end_callback(); }

private:
  MessageLoop loop;
  Notify notifier;
};

class PostedMessage : public Method {
public:
  explicit PostedMessage(Update update) : update(std::move(update)) {}
  void notify() override { loop.post(update); }

private:
  Update update;
  MessageLoop loop;
};

// A flag, and a thread that looks at it.
class Timer : public Method {
public:
  Timer(Update update, uint64_t interval_ns, int priority)
      : thread([this, update, interval_ns, priority] {
          if (priority) set_priority(priority);
          for (uint64_t due = aulos_clock_ns(); !stopped; sleep_until(due += interval_ns))
            if (flag.exchange(false, std::memory_order_acquire)) update();
          update();
        }) {}
  ~Timer() override {
    stopped = true;
    thread.join();
  }
  void notify() override { flag.store(true, std::memory_order_release); }

private:
  std::atomic<bool> flag{false}, stopped{false};
  std::thread thread;
};

class TimerThenPost : public Method {
public:
  explicit TimerThenPost(const Update &update)
      : timer([this, update] { loop.post(update); }, 5'000'000, 40) {}
  void notify() override { timer.notify(); }

private:
  MessageLoop loop;
  Timer timer;
};

class EventThenPost : public Method {
public:
  explicit EventThenPost(const Update &update)
      : thread([this, update] {
          set_priority(40);
          for (event.wait(); !stopped; event.wait()) loop.post(update);
        }) {}
  ~EventThenPost() override {
    stopped = true;
    event.set();
    thread.join();
  }
  void notify() override { event.set(); }

private:
  Event event;
  std::atomic<bool> stopped{false};
  MessageLoop loop;
  std::thread thread;
};

struct Contestant {
  const char *name;
  bool system_call; // on the audio thread
  std::function<std::unique_ptr<Method>(const Update &)> make;
  std::vector<double> latency_ns, cost_ns;
};

// One change per callback; the view's update sees all changes since the last time.
void run_round(Contestant &contestant, size_t changes, unsigned seed) {
  std::vector<uint64_t> sent(changes);
  std::vector<double> latency(changes), cost(changes);
  std::atomic<size_t> published{0};
  size_t seen = 0;
  {
    const auto method = contestant.make([&] {
      for (const size_t until = published.load(std::memory_order_acquire); seen < until; ++seen)
        latency[seen] = static_cast<double>(aulos_clock_ns() - sent[seen]);
    });
    std::thread([&] {
      set_priority(50);
      std::mt19937 random(seed);
      std::uniform_int_distribution<uint64_t> moment(0, work_ns);
      // The first callbacks are not counted: the dispatcher finds the phase, caches fill.
      const size_t warm_up = 50;
      uint64_t due = aulos_clock_ns();
      for (size_t k = 0; k < changes + warm_up; ++k) {
        sleep_until(due += period_ns);
        const uint64_t begin = aulos_clock_ns(), at = begin + moment(random);
        method->begin_callback();
        uint64_t now = begin;
        while (now < at) now = aulos_clock_ns();
        if (k >= warm_up) {
          sent[k - warm_up] = now;
          published.store(k - warm_up + 1, std::memory_order_release);
        }
        method->notify();
        const uint64_t after = aulos_clock_ns();
        if (k >= warm_up) cost[k - warm_up] = static_cast<double>(after - now);
        while (aulos_clock_ns() < begin + work_ns) {}
        method->end_callback();
      }
    }).join();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (seen != changes) throw std::runtime_error("a change did not arrive");
  contestant.latency_ns.insert(contestant.latency_ns.end(), latency.begin(), latency.end());
  contestant.cost_ns.insert(contestant.cost_ns.end(), cost.begin(), cost.end());
}

struct Summary {
  double mean, half, most, max;
};

Summary summarize(std::vector<double> values, double unit) {
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))] / unit;
  };
  return {sum / static_cast<double>(values.size()) / unit, at(0.5), at(0.99), at(1)};
}

void print_table(const std::vector<Contestant> &contestants) {
  std::puts("| method | mean us | p50 | p99 | max | cost on the audio thread, mean ns | p99 | max "
            "| system call there |\n|---|---|---|---|---|---|---|---|---|");
  for (const auto &contestant : contestants) {
    const Summary latency = summarize(contestant.latency_ns, 1000);
    const Summary cost = summarize(contestant.cost_ns, 1);
    std::printf("| %s | %.1f | %.1f | %.1f | %.0f | %.0f | %.0f | %.0f | %s |\n", contestant.name,
                latency.mean, latency.half, latency.most, latency.max, cost.mean, cost.most,
                cost.max, contestant.system_call ? "yes" : "no");
  }
}

// One histogram below the other, over a logarithmic axis from 1 us to 100 ms, ten bars per decade.
void write_picture(const std::vector<Contestant> &contestants, const char *path) {
  std::FILE *file = std::fopen(path, "w");
  if (!file) throw std::runtime_error(std::string("cannot write ") + path);
  constexpr int bars = 50, left = 190, bar = 10, row = 66, top = 34, bars_height = 46;
  const int height = top + row * static_cast<int>(contestants.size()) + 30;
  std::fprintf(file,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 %d\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"720\" height=\"%d\" "
               "fill=\"#fff\"/>\n<text x=\"10\" y=\"20\" font-weight=\"bold\">From a change on "
               "the audio thread to the view, %zu each</text>\n",
               height, height, contestants[0].latency_ns.size());
  static const char *const labels[] = {"1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"};
  for (int decade = 0; decade <= 5; ++decade) {
    const int x = left + decade * 10 * bar;
    std::fprintf(file, "<path d=\"M%d %dV%d\" stroke=\"#ddd\"/>", x, top, height - 30);
    std::fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, height - 12,
                 labels[decade]);
  }
  int y = top;
  for (const auto &contestant : contestants) {
    std::vector<double> share(bars);
    for (const double value : contestant.latency_ns) {
      const double place = std::clamp(std::log10(value / 1000) * 10, 0.0, bars - 1.0);
      share[static_cast<size_t>(place)] += 1 / static_cast<double>(contestant.latency_ns.size());
    }
    const double highest = *std::max_element(share.begin(), share.end());
    const int base = y + row - 8;
    const double half = summarize(contestant.latency_ns, 1000).half;
    std::fprintf(file, "<text x=\"10\" y=\"%d\">%s</text>", base - 22, contestant.name);
    std::fprintf(file, "<text x=\"10\" y=\"%d\" fill=\"#666\">half within %.0f us</text>\n",
                 base - 6, half);
    std::fprintf(file, "<path fill=\"%s\" d=\"", contestant.system_call ? "#b5651d" : "#2a6db0");
    for (int k = 0; k < bars; ++k) {
      const double part = share[static_cast<size_t>(k)];
      // A single change is still a visible line.
      const double size = part > 0 ? std::max(1.0, part / highest * bars_height) : 0;
      if (size > 0)
        std::fprintf(file, "M%d %dv-%.1fh9v%.1fz", left + k * bar, base, size, size);
    }
    std::fprintf(file, "\"/>\n<path d=\"M%d %dH%d\" stroke=\"#888\"/>\n", left, base,
                 left + bars * bar);
    y += row;
  }
  std::fprintf(file, "<text x=\"710\" y=\"20\" text-anchor=\"end\" fill=\"#b5651d\">system call on "
                     "the audio thread</text>\n</svg>\n");
  if (std::fclose(file) != 0) throw std::runtime_error(std::string("cannot write ") + path);
}

} // namespace

int main(int count, char **arguments) {
  const size_t changes = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 10'000;
  if (changes == 0) return std::fprintf(stderr, "usage: %s [CHANGES [SVG]]\n", arguments[0]), 2;
  std::vector<Contestant> contestants;
  const auto add = [&](const char *name, bool system_call, auto make) {
    contestants.push_back({name, system_call, make, {}, {}});
  };
  add("notify", false, [](const Update &u) { return std::make_unique<Notify>(u, 0); });
  add("notify, then a message", false,
      [](const Update &u) { return std::make_unique<NotifyThenPost>(u); });
  add("posted message", true, [](const Update &u) { return std::make_unique<PostedMessage>(u); });
  add("thread and event", true, [](const Update &u) { return std::make_unique<EventThenPost>(u); });
  add("5 ms timer", false, [](const Update &u) { return std::make_unique<TimerThenPost>(u); });
  add("25 Hz timer", false,
      [](const Update &u) { return std::make_unique<Timer>(u, 40'000'000, 0); });
  try {
    for (size_t done = 0; done < changes; done += round_changes)
      for (auto &contestant : contestants)
        run_round(contestant, std::min(round_changes, changes - done), static_cast<unsigned>(done));
    print_table(contestants);
    if (count > 2) write_picture(contestants, arguments[2]);
  } catch (const std::exception &error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
  bool granted = false;
  std::thread([&] { granted = set_priority(50); }).join();
  std::printf("SCHED_FIFO %s\n", granted ? "granted" : "refused");
  return 0;
}
