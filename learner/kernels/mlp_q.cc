#include "learner/kernels/mlp_q.h"

#include "glog/logging.h"

namespace flotilla {

MlpQ::MlpQ(const MlpShape& shape, bool training, const KernelTable& kernels)
    : shape_(shape),
      kernels_(kernels),
      training_(training),
      workspace_(shape, training) {
  CHECK(shape.output == MlpOutput::kQ || shape.output == MlpOutput::kDuelingQ)
      << "that is no Q network";
}

void MlpQ::SetParameters(const float* parameters) {
  kernels_.pack(workspace_.plan(), parameters, workspace_.data());
}

void MlpQ::Values(const float* observations, int64_t rows, float* q) {
  kernels_.q_values(workspace_.plan(), workspace_.data(), observations, rows,
                    q);
}

QSums MlpQ::Gradient(const QSamples& samples, bool huber, float* error,
                     float* gradient) {
  CHECK(training_) << "made without room for gradients";
  return kernels_.q_gradient(workspace_.plan(), workspace_.data(), samples,
                             huber, error, gradient);
}

}  // namespace flotilla
