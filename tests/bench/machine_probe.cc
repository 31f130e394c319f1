// What the machine can do right now, in half a second: whoever measures asks
// before and after, and knows whether it was the same machine. One line of JSON:
//
//   fma_gflops    float32 multiply-adds from registers, two operations each, all cores
//   amx_gflops    multiply-adds of bfloat16 by tiles, likewise; without AMX left out
//   copy_gb_s     bytes that all cores copy between buffers beyond their caches
//   ping_pong_ns  from one core to another and back, by one cache line
//   slow_shares   with SECONDS, for so long: how much of the time each core multiplied at
//                 less than four fifths of what it can, by tiles if it has them; else of what
//                 the best did in its best window. On a host that others share a core may be
//                 half of one, whose other half is theirs
//
// usage: flotilla_machine_probe [CORES [SECONDS [DUTY]]]   (the first of those that it may
// run on; all). Each other number is the median of some windows. With a DUTY below 1, 0.01
// say, there is nothing but slow_shares, for so much of the time: beside what is measured
// otherwise. Without tiles all cores are busy for a third of a second first.

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

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

// Whether this process may use tiles of bfloat16.
bool HasTiles() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  constexpr int kRequestComponent = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  constexpr unsigned kAmxBf16 = 1 << 22, kAmxTile = 1 << 24;
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0 &&
         (d & kAmxTile) != 0 &&
         syscall(SYS_arch_prctl, kRequestComponent, kTileData) == 0;
#else
  return false;
#endif
}

#ifdef __x86_64__
// Products of tiles from registers, and how many: 16 * 16 * 32 multiply-adds each. Of
// tiles that were never loaded a core makes them at its best where of others it does not.
__attribute__((target("amx-tile,amx-bf16"))) double ByTiles(float* sums) {
  struct {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  constexpr int kTimes = 500;
  // GCC takes the intrinsic for a load of 8 bytes, and leaves the others unwritten.
  asm volatile("" : : "m"(config));
  _tile_loadconfig(&config);
  const float* const row = sums;
  asm volatile("" : : "m"(*reinterpret_cast<const float(*)[16]>(row)));
  _tile_loadd(4, row, 0);  // all rows are the same
  _tile_loadd(5, row, 0);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int i = 0; i < kTimes; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return 2.0 * kTimes * 4 * 16 * 16 * 32;
}
#else
double ByTiles(float*) { return 0; }
#endif

// A thread's own time, that is, whoever else runs on its core meanwhile.
double OwnSeconds() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * used.tv_nsec;
}

// What `some` says it did for so long, a second.
template <typename Some>
double OwnRate(double seconds, Some some) {
  const double begin = OwnSeconds();
  double done = 0, used = 0;
  while (used < seconds) {
    done += some();
    used = OwnSeconds() - begin;
  }
  return done / used;
}

// Multiplications that each wait for the one before, and how many cycles they take,
// whatever a core's other half does.
double Cycles() {
  constexpr int kTimes = 5000;
#ifdef __x86_64__
  uint64_t x = 3;
  for (int i = 0; i < kTimes; ++i) asm volatile("imul %0, %0" : "+r"(x));
#endif
  return 3.0 * kTimes;
}

// Of products by tiles what a core makes is known, one in 16 cycles; of others not, and the
// best window of all stands for it.
std::vector<double> SlowShares(const std::vector<int>& cores, const Fma& fma,
                               bool tiles, double seconds, double duty) {
  constexpr double kSlow = 0.8;
  constexpr double kTilesFlopPerCycle = 2.0 * 16 * 16 * 32 / 16;
  const double window = duty < 1 ? 2e-4 : 1e-2;
  const double warm = duty < 1 ? 1e-3 : window;
  const auto rest = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>((warm + window) * (1 / duty - 1)));
  std::vector<std::vector<double>> rates(cores.size());
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(seconds));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] {
      StayOn(cores[i]);
      float sums[16];
      std::fill_n(sums, 16, 1e-3f);
      const auto some = [&] { return tiles ? ByTiles(sums) : fma.by(sums); };
      while (Clock::now() < end) {
        OwnRate(warm, some);  // wakes what has rested
        const double most =
            tiles ? kTilesFlopPerCycle * OwnRate(window / 10, Cycles) : 1;
        rates[i].push_back(OwnRate(window, some) / most);
        std::this_thread::sleep_until(std::min(end, Clock::now() + rest));
      }
    });
  }
  threads.clear();
  double best = 0;
  for (const std::vector<double>& of_core : rates) {
    for (const double rate : of_core) best = std::max(best, rate);
  }
  if (tiles) best = 1;
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
  using namespace flotilla;  // NOLINT
  std::vector<int> cores = Cores();
  const int wanted = argc > 1 ? std::atoi(argv[1]) : 0;
  if (wanted > 0 && wanted < static_cast<int>(cores.size()))
    cores.resize(wanted);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0;
  const double given = argc > 3 ? std::atof(argv[3]) : 1;
  const double duty = given > 0 && given < 1 ? given : 1;
  const bool tiles = HasTiles();
  const Fma fma =
      duty == 1 || seconds <= 0 || !tiles ? MeasureFma(cores) : Fma{};
  const char* between = "{";
  const auto print = [&](const char* name, double number) {
    std::printf("%s\"%s\": %.4g", between, name, number);
    between = ", ";
  };
  if (duty == 1 || seconds <= 0) {
    print("fma_gflops", fma.gflops);
    if (tiles) {
      std::vector<std::vector<float>> rows(cores.size(),
                                           std::vector<float>(16, 1e-3f));
      print("amx_gflops", Rate(cores, [&](size_t core) {
                            return ByTiles(rows[core].data());
                          }) / 1e9);
    }
    print("copy_gb_s", CopyGigabytes(cores));
    print("ping_pong_ns", PingPongNanoseconds(cores));
  }
  if (seconds > 0) {
    std::printf("%s\"slow_shares\": ", between);
    between = "[";
    for (const double share : SlowShares(cores, fma, tiles, seconds, duty)) {
      std::printf("%s%.2g", between, share);
      between = ", ";
    }
    std::printf("]");
  }
  std::printf("}\n");
}
