#include "tests/learner/kernels/reference_mlp.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <utility>

#include "tests/learner/kernels/bfloat16_numbers.h"

namespace flotilla {

ReferenceMlp::ReferenceMlp(const MlpShape& shape,
                           std::vector<double> parameters)
    : shape_(shape),
      layout_(ParameterLayout(shape)),
      parameters_(std::move(parameters)) {}

int64_t ReferenceMlp::At(const std::string& name) const {
  for (const ParameterBlock& block : layout_) {
    if (block.name == name) return block.offset;
  }
  std::abort();
}

double ReferenceMlp::Activate(double x) const {
  return shape_.activation == Activation::kTanh ? std::tanh(x)
                                                : std::max(x, 0.0);
}

double ReferenceMlp::Multiplied(double x, bool hidden) const {
  return hidden && shape_.bfloat16 ? Rounded(static_cast<float>(x)) : x;
}

std::vector<double> ReferenceMlp::Linear(const std::string& name, int out,
                                         const std::vector<double>& in,
                                         bool hidden) const {
  const int64_t weight = At(name + ".weight");
  const int64_t bias = At(name + ".bias");
  std::vector<double> result(out);
  for (int o = 0; o < out; ++o) {
    double sum = parameters_[bias + o];
    for (size_t i = 0; i < in.size(); ++i) {
      sum += Multiplied(parameters_[weight + o * in.size() + i], hidden) *
             Multiplied(in[i], hidden);
    }
    result[o] = sum;
  }
  return result;
}

std::string ReferenceMlp::Stack(bool policy) const {
  if (shape_.share_trunk) return "trunk";
  if (!policy) return "critic";
  return shape_.continuous ? "actor_mean" : "actor";
}

std::string ReferenceMlp::Head(bool policy) const {
  if (shape_.share_trunk) return policy ? "policy" : "value";
  return Stack(policy) + "." + std::to_string(2 * shape_.hidden.size());
}

double ReferenceMlp::LogStd(int action) const {
  return parameters_[At("actor_logstd") + action];
}

// The observation, then the output of each hidden layer.
ReferenceMlp::Activations ReferenceMlp::Hidden(const std::string& stack,
                                               const float* observation) const {
  Activations all = {
      std::vector<double>(observation, observation + shape_.observations)};
  for (size_t i = 0; i < shape_.hidden.size(); ++i) {
    std::vector<double> x = Linear(stack + "." + std::to_string(2 * i),
                                   shape_.hidden[i], all.back(), true);
    for (double& value : x) value = Activate(value);
    all.push_back(std::move(x));
  }
  return all;
}

ReferenceMlp::Output ReferenceMlp::Forward(const float* observation) const {
  return {Linear(Head(true), shape_.actions,
                 Hidden(Stack(true), observation).back(), false),
          Linear(Head(false), 1, Hidden(Stack(false), observation).back(),
                 false)[0]};
}

std::vector<int> ReferenceMlp::Choices() const {
  return shape_.choices.empty() ? std::vector<int>{shape_.actions}
                                : shape_.choices;
}

void ReferenceMlp::Forbid(const uint8_t* allowed, Output* output) const {
  double* logits = output->policy.data();
  for (const int values : Choices()) {
    const bool any = std::any_of(allowed, allowed + values,
                                 [](uint8_t one) { return one != 0; });
    for (int a = 0; a < values; ++a, ++allowed, ++logits) {
      if (any && *allowed == 0) {
        *logits = -std::numeric_limits<double>::infinity();
      }
    }
  }
}

std::vector<double> ReferenceMlp::LogProbs(const Output& output) const {
  std::vector<double> log_probs = output.policy;
  auto logits = log_probs.begin();
  for (const int values : Choices()) {
    const double largest = *std::max_element(logits, logits + values);
    double sum = 0;
    for (int a = 0; a < values; ++a) sum += std::exp(logits[a] - largest);
    for (int a = 0; a < values; ++a) logits[a] -= largest + std::log(sum);
    logits += values;
  }
  return log_probs;
}

double ReferenceMlp::LogProb(const Output& output, const double* action) const {
  if (!shape_.continuous) {
    double log_prob = 0;
    int first = 0;
    for (const int values : Choices()) {
      log_prob += LogProbs(output)[first + static_cast<int>(*action++)];
      first += values;
    }
    return log_prob;
  }
  double log_prob = 0;
  for (int a = 0; a < shape_.actions; ++a) {
    const double std = std::exp(LogStd(a));
    const double z = (action[a] - output.policy[a]) / std;
    log_prob +=
        -0.5 * z * z - std::log(std) - 0.5 * std::log(2 * std::numbers::pi);
  }
  return log_prob;
}

double ReferenceMlp::Entropy(const Output& output) const {
  double entropy = 0;
  if (shape_.continuous) {
    for (int a = 0; a < shape_.actions; ++a) {
      entropy += 0.5 + 0.5 * std::log(2 * std::numbers::pi) + LogStd(a);
    }
  } else {
    for (const double x : LogProbs(output)) {
      if (std::isfinite(x)) entropy -= std::exp(x) * x;
    }
  }
  return entropy;
}

std::vector<double> ReferenceMlp::LayerBackward(
    const std::string& name, const std::vector<double>& in,
    const std::vector<double>& d, bool hidden,
    std::vector<double>* gradient) const {
  const int64_t weight = At(name + ".weight");
  const int64_t bias = At(name + ".bias");
  std::vector<double> d_in(in.size());
  for (size_t o = 0; o < d.size(); ++o) {
    (*gradient)[bias + o] += d[o];
    const double multiplied = Multiplied(d[o], hidden);
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t at = weight + o * in.size() + i;
      (*gradient)[at] += multiplied * Multiplied(in[i], hidden);
      d_in[i] += multiplied * Multiplied(parameters_[at], hidden);
    }
  }
  return d_in;
}

void ReferenceMlp::HiddenBackward(const std::string& stack,
                                  const Activations& hidden,
                                  std::vector<double> d,
                                  std::vector<double>* gradient) const {
  for (size_t layer = hidden.size() - 1; layer-- > 0;) {
    const std::vector<double>& out = hidden[layer + 1];
    for (size_t i = 0; i < out.size(); ++i) {
      d[i] *= shape_.activation == Activation::kTanh ? 1 - out[i] * out[i]
              : out[i] > 0                           ? 1
                                                     : 0;
    }
    d = LayerBackward(stack + "." + std::to_string(2 * layer), hidden[layer], d,
                      true, gradient);
  }
}

void ReferenceMlp::Backward(const float* observation,
                            const std::vector<double>& d_policy, double d_value,
                            std::vector<double>* gradient) const {
  const auto through_head = [&](bool policy, const Activations& hidden) {
    return LayerBackward(Head(policy), hidden.back(),
                         policy ? d_policy : std::vector<double>{d_value},
                         false, gradient);
  };
  for (const bool policy : {true, false}) {
    const Activations hidden = Hidden(Stack(policy), observation);
    std::vector<double> d = through_head(policy, hidden);
    if (shape_.share_trunk) {
      const std::vector<double> other = through_head(!policy, hidden);
      for (size_t i = 0; i < d.size(); ++i) d[i] += other[i];
    }
    HiddenBackward(Stack(policy), hidden, std::move(d), gradient);
    if (shape_.share_trunk) return;
  }
}

double ReferenceMlp::PpoSample(const PpoSamples& samples, int32_t row,
                               const PpoLoss& loss, PpoSums* sums,
                               std::vector<double>* gradient) const {
  const float* observation =
      samples.observations + int64_t{row} * shape_.observations;
  Output output = Forward(observation);
  if (samples.mask != nullptr) {
    Forbid(samples.mask + int64_t{row} * shape_.actions, &output);
  }
  std::vector<double> action;
  if (shape_.continuous) {
    const float* from =
        samples.continuous_actions + int64_t{row} * shape_.actions;
    action.assign(from, from + shape_.actions);
  } else {
    const int K = shape_.choice_count();
    const int64_t* from = samples.discrete_actions + int64_t{row} * K;
    action.assign(from, from + K);
  }

  const double log_ratio =
      LogProb(output, action.data()) - samples.log_prob[row];
  const double ratio = std::exp(log_ratio);
  const double advantage =
      (samples.advantage[row] - static_cast<double>(loss.advantage.mean)) *
      loss.advantage.scale;
  const double clip = loss.clip_ratio;
  const double limited = std::clamp(ratio, 1 - clip, 1 + clip);
  const double policy_loss = std::max(-advantage * ratio, -advantage * limited);

  const double target = samples.returns[row];
  const double old_value = samples.value[row];
  double value_loss = 0.5 * std::pow(output.value - target, 2);
  double d_value = output.value - target;
  if (loss.value_clip > 0) {
    const double change = output.value - old_value;
    const double bounded =
        std::clamp<double>(change, -loss.value_clip, loss.value_clip);
    const double other = 0.5 * std::pow(old_value + bounded - target, 2);
    if (other > value_loss) {
      d_value = bounded == change ? old_value + bounded - target : 0;
      value_loss = other;
    }
  }

  const double entropy = Entropy(output);
  if (sums != nullptr) {
    *sums += {1,
              policy_loss,
              value_loss,
              entropy,
              -log_ratio,
              (ratio - 1) - log_ratio,
              std::abs(ratio - 1) > clip ? 1.0 : 0.0};
  }
  if (gradient != nullptr) {
    const double d_log_prob =
        -advantage * ratio >= -advantage * limited ? -advantage * ratio : 0;
    std::vector<double> d_policy(shape_.actions);
    const std::vector<double> log_probs =
        shape_.continuous ? std::vector<double>() : LogProbs(output);
    if (shape_.continuous) {
      for (int a = 0; a < shape_.actions; ++a) {
        const double variance = std::exp(2 * LogStd(a));
        const double off = action[a] - output.policy[a];
        d_policy[a] = d_log_prob * off / variance / loss.divisor;
        (*gradient)[At("actor_logstd") + a] +=
            (d_log_prob * (off * off / variance - 1) - loss.entropy_cost) /
            loss.divisor;
      }
    } else {
      int first = 0;
      for (size_t k = 0; k < Choices().size(); ++k) {
        const int values = Choices()[k];
        double of_choice = 0;  // entropy
        for (int a = first; a < first + values; ++a) {
          const double p = std::exp(log_probs[a]);
          if (p > 0) of_choice -= p * log_probs[a];
        }
        for (int a = first; a < first + values; ++a) {
          const double p = std::exp(log_probs[a]);
          const double d_entropy = p > 0 ? -p * (log_probs[a] + of_choice) : 0;
          d_policy[a] = (d_log_prob * ((a - first == action[k] ? 1 : 0) - p) -
                         loss.entropy_cost * d_entropy) /
                        loss.divisor;
        }
        first += values;
      }
    }
    Backward(observation, d_policy, loss.value_cost * d_value / loss.divisor,
             gradient);
  }
  return policy_loss - loss.entropy_cost * entropy +
         loss.value_cost * value_loss;
}

double ReferenceMlp::Ppo(const PpoSamples& samples,
                         std::span<const int32_t> rows, const PpoLoss& loss,
                         PpoSums* sums, std::vector<double>* gradient) const {
  double total = 0;
  for (const int32_t row : rows) {
    if (samples.valid != nullptr && samples.valid[row] == 0) continue;
    total += PpoSample(samples, row, loss, sums, gradient);
  }
  return total / loss.divisor;
}

}  // namespace flotilla
