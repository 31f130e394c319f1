#include "learner/nn/replay_sequences.h"

#include "learner/device/transfer.h"

namespace flotilla {
namespace {

torch::Tensor StepsOf(const Rollout& rollout, const torch::Tensor& columns,
                      int64_t steps) {
  return (torch::arange(steps, torch::kInt32).unsqueeze(1) * rollout.rows +
          columns)
      .flatten();  // [steps * b]
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
  const torch::Tensor all = StepsOf(rollout, columns, rollout.length);
  if (index.numel() == all.numel()) return replayed;
  const torch::Tensor valid = ToDevice(
      rollout.valid.flatten().index_select(0, all).nonzero().squeeze(1),
      device);
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
