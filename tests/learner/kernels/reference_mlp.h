#ifndef FLOTILLA_TESTS_LEARNER_KERNELS_REFERENCE_MLP_H_
#define FLOTILLA_TESTS_LEARNER_KERNELS_REFERENCE_MLP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "learner/kernels/mlp_shape.h"
#include "learner/kernels/ppo_loss.h"

namespace flotilla {

// An MLP actor-critic and PPO's loss in float64 and plain loops, from their
// definitions: what the kernels are tested against. Finds its parameters by the
// names of ParameterLayout.
class ReferenceMlp {
 public:
  struct Output {
    std::vector<double> policy;  // [A]
    double value = 0;
  };

  ReferenceMlp(const MlpShape& shape, std::vector<double> parameters);
  ReferenceMlp(const MlpShape& shape, const std::vector<float>& parameters)
      : ReferenceMlp(
            shape, std::vector<double>(parameters.begin(), parameters.end())) {}

  Output Forward(const float* observation) const;

  // Gives values that `allowed` [A] forbids no probability, of choices where it
  // allows any.
  void Forbid(const uint8_t* allowed, Output* output) const;

  // log pi(a | s), of the value of each choice or the numbers, and the entropy.
  double LogProb(const Output& output, const double* action) const;
  double Entropy(const Output& output) const;

  // The loss, summed over the valid ones of `rows` and divided. `sums` and
  // `gradient` [P] may be null; the gradient is added to.
  double Ppo(const PpoSamples& samples, std::span<const int32_t> rows,
             const PpoLoss& loss, PpoSums* sums,
             std::vector<double>* gradient) const;

 private:
  using Activations = std::vector<std::vector<double>>;

  int64_t At(const std::string& name) const;
  double Activate(double x) const;
  std::vector<int> Choices() const;
  // What a hidden layer, or a head, multiplies in place of a number.
  double Multiplied(double x, bool hidden) const;
  std::vector<double> Linear(const std::string& name, int out,
                             const std::vector<double>& in, bool hidden) const;
  Activations Hidden(const std::string& stack, const float* observation) const;
  std::string Stack(bool policy) const;
  std::string Head(bool policy) const;
  double LogStd(int action) const;
  std::vector<double> LogProbs(const Output& output) const;

  // Back through one layer, or a head: returns d loss / d `in`.
  std::vector<double> LayerBackward(const std::string& name,
                                    const std::vector<double>& in,
                                    const std::vector<double>& d, bool hidden,
                                    std::vector<double>* gradient) const;
  // Of d loss / d the last of `hidden`.
  void HiddenBackward(const std::string& stack, const Activations& hidden,
                      std::vector<double> d,
                      std::vector<double>* gradient) const;
  // Of d loss / d the heads' outputs, back to the parameters.
  void Backward(const float* observation, const std::vector<double>& d_policy,
                double d_value, std::vector<double>* gradient) const;
  double PpoSample(const PpoSamples& samples, int32_t row, const PpoLoss& loss,
                   PpoSums* sums, std::vector<double>* gradient) const;

  const MlpShape shape_;
  const std::vector<ParameterBlock> layout_;
  const std::vector<double> parameters_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_KERNELS_REFERENCE_MLP_H_
