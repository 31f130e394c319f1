#include "learner/rollout/rollout.h"

#include "learner/device/transfer.h"

namespace flotilla {
namespace {

// All but the observation, [T, B]: `bytes` and `floats` say what kind.
void Allocate(int64_t T, int64_t B, int64_t state_size,
              const torch::TensorOptions& floats,
              const torch::TensorOptions& bytes, Rollout* r) {
  r->length = T;
  r->rows = B;
  r->log_prob = torch::zeros({T, B}, floats);
  r->value = torch::zeros({T + 1, B}, floats);
  r->reward = torch::zeros({T, B}, floats);
  r->terminated = torch::zeros({T, B}, bytes);
  r->truncated = torch::zeros({T, B}, bytes);
  r->bootstrap_value = torch::zeros({T, B}, floats);
  r->valid = torch::zeros({T, B}, bytes);
  if (state_size > 0) r->initial_state = torch::zeros({B, state_size}, floats);
}

}  // namespace

Rollout MakeRollout(const Spaces& spaces, int64_t length, int64_t rows,
                    bool pinned, int64_t state_size) {
  const auto options = [pinned](torch::Dtype dtype) {
    return torch::TensorOptions().dtype(dtype).pinned_memory(pinned);
  };
  Rollout r;
  Allocate(length, rows, state_size, options(torch::kFloat32),
           options(torch::kUInt8), &r);
  r.observation = ObservationStore(spaces, length + 1, rows, pinned);
  r.action = MakeActions(spaces.action, {length, rows}, pinned);
  return r;
}

Rollout MakeRolloutOn(torch::Device device, const Spaces& spaces,
                      int64_t length, int64_t rows, int64_t state_size) {
  const auto options = torch::TensorOptions().device(device);
  Rollout r;
  Allocate(length, rows, state_size, options.dtype(torch::kFloat32),
           options.dtype(torch::kUInt8), &r);
  r.observation = ObservationStore::OnDevice(spaces, length + 1, rows, device);
  r.action = MakeActions(spaces.action, {length, rows})
                 .Map([&](const torch::Tensor& t) {
                   return torch::zeros(t.sizes(), t.options().device(device));
                 });
  return r;
}

void Upload(const Rollout& host, Rollout* there) {
  const auto copy = [](const torch::Tensor& from, torch::Tensor to) {
    if (from.defined()) CopyToDevice(from, to);
  };
  there->observation.CopyAll(host.observation);
  copy(host.action.discrete, there->action.discrete);
  copy(host.action.continuous, there->action.continuous);
  copy(host.log_prob, there->log_prob);
  copy(host.value, there->value);
  copy(host.bootstrap_value, there->bootstrap_value);
  copy(host.initial_state, there->initial_state);
  UploadOutcomes(host, there);
}

void UploadOutcomes(const Rollout& host, Rollout* there) {
  CopyToDevice(host.reward, there->reward);
  CopyToDevice(host.terminated, there->terminated);
  CopyToDevice(host.truncated, there->truncated);
  CopyToDevice(host.valid, there->valid);
  there->policy_version = host.policy_version;
  there->valid_steps = host.valid_steps;
}

torch::Tensor Starts(const Rollout& r) {
  torch::Tensor starts =
      torch::zeros({r.length + 1, r.rows}, r.valid.options());
  starts.narrow(0, 1, r.length)
      .copy_(r.terminated.logical_or(r.truncated).logical_or_(r.valid == 0));
  return starts;
}

}  // namespace flotilla
