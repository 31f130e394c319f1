#include "learner/nn/replay_sequences.h"

#include "learner/device/transfer.h"

namespace flotilla {
namespace {

torch::Tensor StepsOf(const Rollout& rollout, const torch::Tensor& columns,
                      int64_t steps) {
  return (torch::arange(steps, columns.options()).unsqueeze(1) * rollout.rows +
          columns)
      .flatten();  // [steps * b]
}

// Where `index` is among StepsOf, [M] int64.
torch::Tensor PlacesOf(const Rollout& rollout, const torch::Tensor& index,
                       const torch::Tensor& columns) {
  if (index.is_cpu()) {
    return rollout.valid.flatten()
        .index_select(0, StepsOf(rollout, columns, rollout.length))
        .nonzero()
        .squeeze(1);
  }
  // The same without having to know on the host how many are valid.
  const torch::Tensor step = index.to(torch::kInt64);
  const torch::Tensor place =
      torch::zeros({rollout.rows}, step.options())
          .index_copy_(0, columns.to(torch::kInt64),
                       torch::arange(columns.numel(), step.options()));
  return torch::floor_divide(step, rollout.rows)
      .mul_(columns.numel())
      .add_(place.index_select(0, step.remainder(rollout.rows)));
}

}  // namespace

Batch SequenceBatch(const Rollout& rollout, const torch::Tensor& columns,
                    int64_t steps, torch::Device device) {
  return rollout.observation.Gather(StepsOf(rollout, columns, steps), device);
}

Sequences SequencesOf(const Rollout& rollout, const torch::Tensor& columns,
                      int64_t steps, torch::Device device) {
  Sequences sequences;
  sequences.state = RowsToDevice(rollout.initial_state, columns, device);
  sequences.keep = ToDevice(
      (1 - Starts(rollout).narrow(0, 0, steps).index_select(1, columns))
          .to(torch::kFloat32)
          .unsqueeze(2),
      device);
  return sequences;
}

Replayed ReplaySequences(const Network& net, const Rollout& rollout,
                         const torch::Tensor& index,
                         const torch::Tensor& columns) {
  const torch::Device device = net.device();
  Replayed replayed;
  replayed.observation =
      SequenceBatch(rollout, columns, rollout.length, device);
  replayed.output =
      net.Forward(replayed.observation,
                  SequencesOf(rollout, columns, rollout.length, device));
  if (index.numel() == rollout.length * columns.numel()) return replayed;
  const torch::Tensor valid =
      ToDevice(PlacesOf(rollout, index, columns), device);
  const auto pick = [&](torch::Tensor* t) { *t = t->index_select(0, valid); };
  pick(&replayed.output.policy);
  pick(&replayed.output.value);
  if (replayed.output.log_std.defined() && replayed.output.log_std.dim() > 1) {
    pick(&replayed.output.log_std);
  }
  for (torch::Tensor& t : replayed.observation.leaf) pick(&t);
  return replayed;
}

Replayed RunSteps(const Network& net, const Rollout& rollout,
                  const torch::Tensor& index, const torch::Tensor& columns) {
  if (net.recurrent()) return ReplaySequences(net, rollout, index, columns);
  Replayed run;
  run.observation = rollout.observation.Gather(index, net.device());
  run.output = net.Forward(run.observation);
  return run;
}

}  // namespace flotilla
