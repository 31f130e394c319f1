// What either end makes of a ring that the other one has written to, anything at
// all (services/env/ring_layout.h); and that steps come through one as they went in.

#include "services/env/ring.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/fuzz/input.h"

namespace flotilla {
namespace {

constexpr size_t kMostBytes = 1 << 20;

v1::EnvSpec MakeSpec(Input* in) {
  v1::EnvSpec spec;
  spec.set_env_id("Fuzz");
  spec.set_agents(1 + in->Below(2));
  for (int i = in->Below(3); i >= 0; --i) {
    v1::Leaf* leaf = spec.add_observation();
    leaf->set_path(std::string(spec.observation_size(), 'o'));
    leaf->set_dtype(static_cast<v1::DType>(1 + in->Below(3)));
    leaf->add_shape(1 + in->Below(9));
  }
  for (int i = in->Below(2); i >= 0; --i) {
    v1::Leaf* leaf = spec.add_action();
    leaf->set_path(std::string(spec.action_size(), 'a'));
    leaf->set_dtype(static_cast<v1::DType>(1 + in->Below(3)));
    leaf->set_num_values(in->Below(4));
  }
  for (int i = in->Below(3); i > 0; --i) {
    spec.add_episode_metric(std::string(i, 'm'));
  }
  return spec;
}

// A step that a ring carries.
v1::StepBatch MakeStep(const v1::EnvSpec& spec, const GroupLayout& layout,
                       Input* in) {
  v1::StepBatch step;
  step.set_group(in->Below(layout.groups));
  step.set_slot(step.group());
  step.set_seq(in->Below(255));
  step.set_reward(
      std::string(4 * layout.rows, static_cast<char>(in->Below(9))));
  step.mutable_terminated()->resize(layout.rows);
  step.mutable_truncated()->resize(layout.rows);
  if (in->Below(2) == 1) step.set_active(std::string(layout.rows, '\1'));
  for (int row = 0; row < layout.rows; ++row) {
    if (in->Below(4) < 3) continue;
    (*step.mutable_terminated())[row] = 1;
    step.add_final_row(row);
    v1::EpisodeEnd* end = step.add_episode_end();
    end->set_row(row);
    end->set_length(in->Below(255));
    end->set_raw_return(in->Below(255));
    for (const std::string& name : spec.episode_metric()) {
      (*end->mutable_metric())[name] = in->Below(9);
    }
  }
  v1::Columns* finals = step.mutable_final_observation();
  for (const size_t bytes : layout.observation_bytes) {
    if (step.final_row_size() == 0) break;
    finals->add_leaf(std::string(bytes * step.final_row_size(), 'f'));
  }
  return step;
}

// Any bytes, wherever the other end may have put them.
void Scribble(std::span<std::byte> memory, Input* in) {
  const std::string bytes = in->Bytes();
  const size_t at = (in->Below(255) * 256 + in->Below(255)) % memory.size();
  std::memcpy(memory.data() + at, bytes.data(),
              std::min(bytes.size(), memory.size() - at));
}

void CheckTaken(const v1::EnvSpec& spec, const GroupLayout& layout,
                const v1::StepBatch& step) {
  const absl::Status fits = CheckStep(spec, layout, /*shared=*/true, step);
  if (!fits.ok()) {
    CHECK(absl::IsInternal(fits)) << fits;
    CHECK(absl::StrContains(fits.message(), "step.")) << fits;
    return;
  }
  for (const int row : step.final_row()) CHECK_LT(row, layout.rows);
  if (step.final_row_size() == 0) return;
  for (size_t i = 0; i < layout.observation_bytes.size(); ++i) {
    CHECK_EQ(step.final_observation().leaf(static_cast<int>(i)).size(),
             step.final_row_size() * layout.observation_bytes[i]);
  }
}

void Run(Input* in) {
  const v1::EnvSpec spec = MakeSpec(in);
  const int groups = 1 + in->Below(3);
  const auto layout = MakeGroupLayout(
      spec, groups * spec.agents() * (1 + in->Below(8)), groups);
  CHECK(layout.ok()) << layout.status();
  const RingLayout ring = MakeRingLayout(spec, *layout);
  CHECK_LE(ring.bytes, kMostBytes);
  std::vector<std::byte> room(ring.bytes + 64);
  const size_t to_line = -reinterpret_cast<uintptr_t>(room.data()) % 64;
  const std::span<std::byte> memory(room.data() + to_line, ring.bytes);
  Ring server(memory, &ring, Ring::End::kServer);
  Ring learner(memory, &ring, Ring::End::kLearner);
  v1::StepBatch step;  // reused, as a stream does
  v1::ActionBatch actions;
  bool whole = true;
  while (!in->empty()) {
    switch (in->Below(4)) {
      case 0:
        Scribble(memory, in);
        whole = false;
        break;
      case 1: {
        const v1::StepBatch sent = MakeStep(spec, *layout, in);
        CHECK(PutStep(spec, *layout, ring, sent, server.NextOut()));
        server.Post();
        const auto taken =
            TakeStep(spec, *layout, ring, learner.NextIn(), &step);
        learner.Take();
        CHECK(taken.ok() && *taken) << taken.status();
        CHECK(google::protobuf::util::MessageDifferencer::Equals(step, sent))
            << step.DebugString() << sent.DebugString();
        if (whole) CHECK_EQ(learner.Waiting(), 0u);
        break;
      }
      case 2: {
        const auto taken =
            TakeStep(spec, *layout, ring, learner.NextIn(), &step);
        if (!taken.ok()) CHECK(absl::IsInternal(taken.status()));
        if (taken.ok() && *taken) CheckTaken(spec, *layout, step);
        break;
      }
      default: {
        TakeActions(*layout, ring, server.NextIn(), &actions);
        const absl::Status fits =
            CheckActions(spec, *layout, v1::StepBatch(), actions);
        CHECK(fits.ok() || absl::IsInvalidArgument(fits)) << fits;
      }
    }
    // Whatever the counters say, nobody waits for long.
    learner.Await(Ring::Clock::now());
    server.Await(Ring::Clock::now());
  }
}

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flotilla::Input in(data, size);
  flotilla::Run(&in);
  return 0;
}
