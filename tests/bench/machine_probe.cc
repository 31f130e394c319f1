// What the machine can do right now, in half a second: whoever measures asks
// before and after, and knows whether it was the same machine. One line of JSON:
//
//   fma_gflops    float32 multiply-adds from registers, two operations each, all cores
//   copy_gb_s     bytes that all cores copy between buffers beyond their caches
//   ping_pong_ns  from one core to another and back, by one cache line
//   slow_shares   with SECONDS, for so long: how much of the time each core multiplied at
//                 less than four fifths of what the best did in its best window; on a host
//                 that others share a core may be half of one, whose other half is theirs
//
// usage: flotilla_machine_probe [CORES [SECONDS]]   (the first of those that it may run
// on; all). Each other number is the median of some windows.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace flotilla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWindows = 9;
constexpr auto kWindow = std::chrono::milliseconds(10);
constexpr size_t kCopied = size_t{24} << 20;  // bytes of a core's buffer

std::vector<int> Cores() {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

void StayOn(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

// What `some` says it did, until a window is over, a second.
double WindowRate(const std::function<double()>& some) {
  const Clock::time_point begin = Clock::now();
  double done = 0;
  Clock::time_point now = begin;
  while (now - begin < kWindow) {
    done += some();
    now = Clock::now();
  }
  return done / std::chrono::duration<double>(now - begin).count();
}

// A thread on each core does `some`, which says how much it was, until the window is
// over. Returns the median of the windows' sums, a second.
double Rate(const std::vector<int>& cores,
            const std::function<double(size_t core)>& some) {
  std::vector<std::vector<double>> rates(kWindows,
                                         std::vector<double>(cores.size()));
  std::barrier together(static_cast<std::ptrdiff_t>(cores.size()));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] {
      StayOn(cores[i]);
      some(i);  // touches its memory
      for (std::vector<double>& window : rates) {
        together.arrive_and_wait();
        window[i] = WindowRate([&] { return some(i); });
      }
    });
  }
  threads.clear();
  std::vector<double> sums;
  for (const std::vector<double>& window : rates) {
    double sum = 0;
    for (const double rate : window) sum += rate;
    sums.push_back(sum);
  }
  return Median(sums);
}

typedef float Lanes4 __attribute__((vector_size(16)));
typedef float Lanes8 __attribute__((vector_size(32)));
typedef float Lanes16 __attribute__((vector_size(64)));

// Multiply-adds of vectors, and how many: two operations each.
template <typename Lanes>
[[gnu::always_inline]] inline double Chains(float* sums) {
  constexpr int kLanes = sizeof(Lanes) / sizeof(float);
  constexpr int kTimes = 2000;
  constexpr int kChains = 12;  // hide the latency, and fit into 16 registers
  Lanes chain[kChains];
  for (int c = 0; c < kChains; ++c) {
    for (int lane = 0; lane < kLanes; ++lane)
      chain[c][lane] = static_cast<float>(c + lane);
  }
  const Lanes factor = chain[0] * 0 + 0.999f, more = chain[0] * 0 + 0.001f;
  for (int i = 0; i < kTimes; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chain[c] = chain[c] * factor + more;
  }
  for (int c = 1; c < kChains; ++c) chain[0] += chain[c];
  std::memcpy(sums, &chain[0], sizeof chain[0]);
  return 2.0 * kTimes * kChains * kLanes;
}

// The compiler makes of each what the machine has; a clone for each is chosen at start.
#if defined(__x86_64__)
#define FLOTILLA_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLOTILLA_CLONES
#endif
FLOTILLA_CLONES double By4(float* sums) { return Chains<Lanes4>(sums); }
FLOTILLA_CLONES double By8(float* sums) { return Chains<Lanes8>(sums); }
FLOTILLA_CLONES double By16(float* sums) { return Chains<Lanes16>(sums); }

// By vectors as wide as are the fastest here: those that are wider than registers, and
// their sums, pass through memory.
struct Fma {
  double (*by)(float*) = nullptr;
  double gflops = 0;
};
Fma MeasureFma(const std::vector<int>& cores) {
  std::vector<std::vector<float>> sums(cores.size(), std::vector<float>(16));
  Fma most;
  for (double (*const by)(float*) : {By4, By8, By16}) {
    const double rate =
        Rate(cores, [&](size_t core) { return by(sums[core].data()); });
    if (rate / 1e9 > most.gflops) most = {by, rate / 1e9};
  }
  return most;
}

std::vector<double> SlowShares(const std::vector<int>& cores, const Fma& fma,
                               double seconds) {
  constexpr double kSlow = 0.8;
  std::vector<std::vector<double>> rates(cores.size());
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(seconds));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] {
      StayOn(cores[i]);
      float sums[16];
      while (Clock::now() < end) {
        rates[i].push_back(WindowRate([&] { return fma.by(sums); }));
      }
    });
  }
  threads.clear();
  double best = 0;
  for (const std::vector<double>& of_core : rates) {
    for (const double rate : of_core) best = std::max(best, rate);
  }
  std::vector<double> shares;
  for (const std::vector<double>& of_core : rates) {
    const auto slow =
        std::count_if(of_core.begin(), of_core.end(),
                      [best](double rate) { return rate < kSlow * best; });
    shares.push_back(static_cast<double>(slow) /
                     static_cast<double>(std::max<size_t>(1, of_core.size())));
  }
  return shares;
}

double CopyGigabytes(const std::vector<int>& cores) {
  constexpr size_t kPiece = size_t{1} << 20;
  struct Buffers {
    std::vector<char> from = std::vector<char>(kCopied, 1),
                      to = std::vector<char>(kCopied);
    size_t at = 0;
  };
  std::vector<Buffers> buffers(cores.size());
  return Rate(cores,
              [&](size_t core) {
                Buffers& mine = buffers[core];
                std::memcpy(&mine.to[mine.at], &mine.from[mine.at], kPiece);
                mine.at = (mine.at + kPiece) % kCopied;
                return static_cast<double>(kPiece);
              }) /
         1e9;
}

// 0 where there is one core.
double PingPongNanoseconds(const std::vector<int>& cores) {
  if (cores.size() < 2) return 0;
  constexpr uint32_t kTimes = 2000, kOver = 0;
  alignas(64) std::atomic<uint32_t> ball{1};
  std::jthread other([&] {
    StayOn(cores[1]);
    while (true) {  // gives back each even number as the odd one after it
      const uint32_t now = ball.load(std::memory_order_acquire);
      if (now == kOver) return;
      if (now % 2 == 0) ball.store(now + 1, std::memory_order_release);
    }
  });
  StayOn(cores[0]);
  std::vector<double> nanoseconds;
  for (int window = 0; window < kWindows; ++window) {
    const Clock::time_point begin = Clock::now();
    Clock::time_point now = begin;
    double times = 0;
    while (now - begin < kWindow) {
      for (uint32_t next = 2; next < 2 * kTimes; next += 2) {
        ball.store(next, std::memory_order_release);
        while (ball.load(std::memory_order_acquire) != next + 1) {
        }
      }
      times += kTimes - 1;
      now = Clock::now();
    }
    nanoseconds.push_back(
        std::chrono::duration<double, std::nano>(now - begin).count() / times);
  }
  ball.store(kOver, std::memory_order_release);
  return Median(nanoseconds);
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  std::vector<int> cores = flotilla::Cores();
  const int wanted = argc > 1 ? std::atoi(argv[1]) : 0;
  if (wanted > 0 && wanted < static_cast<int>(cores.size()))
    cores.resize(wanted);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0;
  const flotilla::Fma fma = flotilla::MeasureFma(cores);
  const double copy = flotilla::CopyGigabytes(cores);
  const double ping_pong = flotilla::PingPongNanoseconds(cores);
  std::printf(
      "{\"fma_gflops\": %.4g, \"copy_gb_s\": %.4g, \"ping_pong_ns\": %.4g",
      fma.gflops, copy, ping_pong);
  if (seconds > 0) {
    const char* between = ", \"slow_shares\": [";
    for (const double share : flotilla::SlowShares(cores, fma, seconds)) {
      std::printf("%s%.2g", between, share);
      between = ", ";
    }
    std::printf("]");
  }
  std::printf("}\n");
}
