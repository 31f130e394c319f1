#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "learner/kernels/adam.h"
#include "learner/kernels/gae.h"
#include "learner/kernels/mlp_actor_critic.h"
#include "learner/kernels/ppo_gradient.h"

// Times the CPU kernels on one core and prints microseconds a call: the fastest
// of many short runs, which is what the code costs when nothing else disturbs
// it, and the median. Prints arithmetic as a share of the multiply-add peak
// that a loop of nothing else reaches on this core.

namespace flotilla {
namespace {

// Aligned as Torch aligns tensors.
template <typename T>
struct Aligned {
  using value_type = T;
  T* allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), kAlignment));
  }
  void deallocate(T* p, size_t) { ::operator delete(p, kAlignment); }
  bool operator==(const Aligned&) const = default;

  static constexpr std::align_val_t kAlignment{64};
};
template <typename T>
using Buffer = std::vector<T, Aligned<T>>;

struct Timing {
  double best;
  double median;
};

Timing TimeMicroseconds(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kBatch = std::chrono::microseconds(200);
  run();
  int calls = 0;
  const auto calibration = Clock::now();
  while (Clock::now() - calibration < kBatch) {
    run();
    ++calls;
  }
  std::vector<double> batches;
  const auto start = Clock::now();
  while (Clock::now() - start < std::chrono::milliseconds(200)) {
    const auto before = Clock::now();
    for (int i = 0; i < calls; ++i) run();
    const std::chrono::duration<double, std::micro> took =
        Clock::now() - before;
    batches.push_back(took.count() / calls);
  }
  std::sort(batches.begin(), batches.end());
  return {batches.front(), batches[batches.size() / 2]};
}

// Billions of multiply-adds a second, counted as two operations each: twelve
// independent chains of the widest vectors this file is compiled for.
double PeakGflops() {
#ifdef __AVX512F__
  constexpr int kLanes = 16;
#elif defined(__AVX2__)
  constexpr int kLanes = 8;
#else
  constexpr int kLanes = 4;
#endif
  typedef float Vec __attribute__((vector_size(4 * kLanes)));
  constexpr int kRounds = 2000, kChains = 12;
  const Timing timing = TimeMicroseconds([] {
    Vec chains[kChains];
    for (int i = 0; i < kChains; ++i) chains[i] = Vec{} + 1.0f / (i + 2);
    const Vec x = Vec{} + 0.999f;
    for (int round = 0; round < kRounds; ++round) {
      for (Vec& chain : chains) chain = chain * x + x;
    }
    for (int i = 1; i < kChains; ++i) chains[0] += chains[i];
    asm volatile("" ::"m"(chains[0]));
  });
  return 2.0 * kChains * kLanes * kRounds / timing.best * 1e-3;
}

void Print(const std::string& name, const Timing& timing, double operations = 0,
           double peak = 0) {
  std::printf("%-52s %9.2f us  median %9.2f", name.c_str(), timing.best,
              timing.median);
  if (operations > 0) {
    const double gflops = operations / timing.best * 1e-3;
    std::printf("  %6.1f GFLOP/s  %4.1f%% of peak", gflops,
                100 * gflops / peak);
  }
  std::printf("\n");
}

// Multiply-adds of one sample, twice: forward,
double ForwardOperations(const MlpShape& shape) {
  const int stacks = shape.share_trunk ? 1 : 2;
  double forward = 0;
  int in = shape.observations;
  for (const int out : shape.hidden) {
    forward += static_cast<double>(stacks) * in * out;
    in = out;
  }
  forward += static_cast<double>(in) * (shape.actions + 1);
  return 2 * forward;
}

// and with both gradients of every layer but the input's.
double TrainingOperations(const MlpShape& shape) {
  const int stacks = shape.share_trunk ? 1 : 2;
  const double input_layer =
      static_cast<double>(stacks) * shape.observations * shape.hidden[0];
  return 3 * ForwardOperations(shape) - 2 * input_layer;
}

class Bench {
 public:
  // Minibatches are drawn from so many samples: those of a rollout may lie far from
  // the caches.
  Bench(std::string name, const MlpShape& shape, const KernelTable& kernels,
        double peak, int64_t samples = 2048)
      : name_(std::move(name)),
        shape_(shape),
        kernels_(kernels),
        peak_(peak),
        samples_(samples) {
    std::normal_distribution<float> normal;
    auto fill = [&](Buffer<float>* values, size_t size, float scale) {
      values->resize(size);
      for (float& value : *values) value = scale * normal(rng_);
    };
    fill(&parameters_, ParameterCount(shape), 0.1f);
    fill(&observations_, samples_ * shape.observations, 1);
    fill(&normals_, samples_ * shape.actions, 1);
    fill(&advantage_, samples_, 1);
    fill(&returns_, samples_, 1);
    uniforms_.resize(samples_);
    for (float& u : uniforms_)
      u = std::uniform_real_distribution<float>()(rng_);
    action_.resize(samples_);
    continuous_action_.resize(samples_ * shape.actions);
    log_prob_.resize(samples_);
    value_.resize(samples_);
  }

  void Decide(int64_t rows) {
    MlpActorCritic network(shape_, kernels_);
    network.SetParameters(parameters_.data());
    Print(name_ + " decide N=" + std::to_string(rows),
          TimeMicroseconds([&] { DecideOnce(&network, rows); }),
          ForwardOperations(shape_) * static_cast<double>(rows), peak_);
  }

  void Minibatch(int64_t rows) {
    MlpActorCritic network(shape_, kernels_);
    network.SetParameters(parameters_.data());
    DecideOnce(&network, samples_);
    std::vector<int32_t> indices(samples_);
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), rng_);
    const PpoSamples samples = {
        .observations = observations_.data(),
        .discrete_actions = shape_.continuous ? nullptr : action_.data(),
        .continuous_actions =
            shape_.continuous ? continuous_action_.data() : nullptr,
        .log_prob = log_prob_.data(),
        .advantage = advantage_.data(),
        .returns = returns_.data(),
        .value = value_.data()};
    PpoGradient ppo(shape_, kernels_);
    Buffer<float> gradient(parameters_.size());
    PpoLoss loss;
    loss.divisor = static_cast<double>(rows);
    Print(name_ + " ppo minibatch M=" + std::to_string(rows),
          TimeMicroseconds([&, at = int64_t{0}]() mutable {
            const std::span<const int32_t> minibatch(indices.data() + at, rows);
            at = (at + rows) % samples_;
            loss.advantage = NormalizeAdvantages(samples, minibatch);
            ppo.Compute(parameters_.data(), samples, minibatch, loss, false,
                        gradient.data());
          }),
          TrainingOperations(shape_) * static_cast<double>(rows), peak_);
  }

  void Adam() {
    Buffer<float> gradient(parameters_.size(), 1e-3f);
    Buffer<float> first(parameters_.size());
    Buffer<float> second(parameters_.size());
    Buffer<float> parameters = parameters_;
    AdamState state = {static_cast<int64_t>(parameters.size()),
                       parameters.data(), first.data(), second.data()};
    Print(name_ + " clip and Adam P=" + std::to_string(parameters.size()),
          TimeMicroseconds(
              [&] { AdamStep({}, gradient.data(), &state, kernels_); }));
  }

 private:
  void DecideOnce(MlpActorCritic* network, int64_t rows) {
    if (shape_.continuous) {
      network->DecideContinuous(observations_.data(), rows, normals_.data(),
                                continuous_action_.data(), log_prob_.data(),
                                value_.data());
    } else {
      network->DecideDiscrete(observations_.data(), nullptr, rows,
                              uniforms_.data(), action_.data(),
                              log_prob_.data(), value_.data());
    }
  }

  const std::string name_;
  const MlpShape shape_;
  const KernelTable& kernels_;
  const double peak_;
  const int64_t samples_;
  std::mt19937 rng_{1};
  Buffer<float> parameters_, observations_, uniforms_, normals_;
  Buffer<float> advantage_, returns_, log_prob_, value_;
  Buffer<float> continuous_action_;
  Buffer<int64_t> action_;
};

void BenchGae(const KernelTable& kernels, int64_t length, int64_t rows) {
  const int64_t size = length * rows;
  Buffer<float> reward(size, 1), value(size + rows, 0.5f), bootstrap(size),
      advantage(size), returns(size);
  Buffer<uint8_t> terminated(size), truncated(size), valid(size, 1);
  for (int64_t i = 0; i < size; i += 37) terminated[i] = 1;
  const GaeInput input = {length,
                          rows,
                          reward.data(),
                          value.data(),
                          terminated.data(),
                          truncated.data(),
                          bootstrap.data(),
                          valid.data()};
  Print("gae T=" + std::to_string(length) + " B=" + std::to_string(rows),
        TimeMicroseconds([&] {
          GeneralizedAdvantages(input, advantage.data(), returns.data(),
                                kernels);
        }));
}

void Run(const KernelTable& kernels, double peak) {
  std::printf("instruction set %s, peak %.0f GFLOP/s\n", kernels.name, peak);
  Bench cartpole("4-64-64-(2|1)", {4, {64, 64}, Activation::kTanh, false, 2},
                 kernels, peak);
  for (const int64_t rows : {1, 2, 4, 8, 16, 64}) cartpole.Decide(rows);
  for (const int64_t rows : {128, 256, 512, 2048}) cartpole.Minibatch(rows);
  cartpole.Adam();
  Bench walker("17-64-64-(6|1) continuous",
               {17, {64, 64}, Activation::kTanh, false, 6, true}, kernels,
               peak);
  walker.Decide(4);
  walker.Minibatch(64);
  Bench wide("64-256-256-(8+1) shared relu",
             {64, {256, 256}, Activation::kRelu, true, 8}, kernels, peak);
  wide.Decide(64);
  wide.Minibatch(512);
  wide.Adam();
  // native_breakout's, and a deeper one.
  Bench breakout("118-128-(3+1) shared relu",
                 {118, {128}, Activation::kRelu, true, 3}, kernels, peak,
                 65536);
  breakout.Decide(1024);
  breakout.Minibatch(2048);
  Bench deeper("118-128-128-(3+1) shared relu",
               {118, {128, 128}, Activation::kRelu, true, 3}, kernels, peak);
  deeper.Decide(1024);
  deeper.Minibatch(2048);
  MlpShape half = {118, {128}, Activation::kRelu, true, 3};
  half.bfloat16 = true;
  Bench breakout_half("118-128-(3+1) shared relu bfloat16", half, kernels, peak,
                      65536);
  breakout_half.Decide(1024);
  breakout_half.Minibatch(8192);
  half.hidden = {128, 128};
  Bench deeper_half("118-128-128-(3+1) shared relu bfloat16", half, kernels,
                    peak, 65536);
  deeper_half.Decide(1024);
  deeper_half.Minibatch(8192);
  BenchGae(kernels, 128, 4);
  BenchGae(kernels, 128, 64);
}

}  // namespace
}  // namespace flotilla

// With an argument: the instruction set of that name alone.
int main(int argc, char** argv) {
  const double peak = flotilla::PeakGflops();
  for (const flotilla::KernelTable* kernels : flotilla::RunnableKernels()) {
    if (argc < 2 || std::string(argv[1]) == kernels->name) {
      flotilla::Run(*kernels, peak);
    }
  }
  return 0;
}
