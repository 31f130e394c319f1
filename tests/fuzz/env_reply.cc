// What a learner makes of an env server: any specification, any steps
// (services/env/group_layout.h and wire.h), and the actions that it would send.

#include <glog/logging.h>
#include <grpcpp/impl/grpc_library.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "services/env/group_layout.h"
#include "services/env/wire.h"
#include "tests/fuzz/input.h"

namespace flotilla {
namespace {

const std::vector<std::string>& Names() {
  static const auto& names =
      *new std::vector<std::string>{"",
                                    "a",
                                    "b",
                                    std::string(4, '\0'),
                                    std::string(8, '\1'),
                                    std::string(16, '\0')};
  return names;
}

v1::EnvSpec MakeSpec(Input* in) {
  v1::EnvSpec spec;
  spec.set_env_id("Fuzz");
  int path = 0;
  for (int i = in->Below(3); i >= 0; --i) {
    v1::Leaf* leaf = spec.add_observation();
    leaf->set_path(std::string(path++, 'o'));
    leaf->set_dtype(static_cast<v1::DType>(1 + in->Below(3)));
  }
  for (int i = in->Below(2); i >= 0; --i) {
    v1::Leaf* leaf = spec.add_action();
    leaf->set_path(std::string(path++, 'a'));
    leaf->set_dtype(static_cast<v1::DType>(1 + in->Below(3)));
    leaf->set_num_values(in->Below(4));
  }
  in->Fill(Names(), &spec);
  return spec;
}

// A step that fits, unless the layout is large.
v1::PlayReply MakeStep(const GroupLayout& layout, Input* in) {
  v1::PlayReply reply;
  v1::StepBatch* step = reply.mutable_step();
  const size_t rows = layout.rows;
  size_t bytes = 0;
  for (const size_t leaf : layout.observation_bytes) bytes += leaf * rows;
  if (bytes > 65536) return reply;
  for (const size_t leaf : layout.observation_bytes) {
    step->mutable_inline_()->add_leaf()->resize(leaf * rows);
  }
  step->mutable_reward()->resize(4 * rows);
  step->mutable_terminated()->resize(rows);
  step->mutable_truncated()->resize(rows);
  for (size_t row = 0; row < rows; ++row) {
    if (in->Below(4) < 3) continue;
    (*step->mutable_terminated())[row] = 1;
    step->add_final_row(static_cast<int>(row));
  }
  if (step->final_row_size() > 0) {
    for (const size_t leaf : layout.observation_bytes) {
      step->mutable_final_observation()->add_leaf()->resize(
          leaf * step->final_row_size());
    }
  }
  return reply;
}

// Reads every byte that a checked step promises.
void ReadAll(const GroupLayout& layout, bool shared,
             const v1::StepBatch& step) {
  const size_t rows = layout.rows;
  CHECK_EQ(step.reward().size(), rows * 4);
  CHECK_EQ(step.terminated().size(), rows);
  CHECK_EQ(step.truncated().size(), rows);
  for (int row = 0; row < layout.rows; ++row) IsActive(step, row);
  for (const int row : step.final_row()) {
    CHECK_GE(row, 0);
    CHECK_LT(row, layout.rows);
  }
  for (size_t leaf = 0; leaf < layout.observation_bytes.size(); ++leaf) {
    const size_t bytes = layout.observation_bytes[leaf];
    const int i = static_cast<int>(leaf);
    if (!shared) CHECK_EQ(step.inline_().leaf(i).size(), rows * bytes);
    if (step.final_row_size() == 0) continue;
    CHECK_EQ(step.final_observation().leaf(i).size(),
             step.final_row_size() * bytes);
  }
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  // Where gRPC is linked statically, nothing else of this program asks for it.
  static const grpc::internal::GrpcLibraryInitializer initialized;
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

void Run(Input* in) {
  const int groups = 1 + in->Below(3);
  const v1::EnvSpec spec = MakeSpec(in);
  const auto layout =
      MakeGroupLayout(spec, groups * (1 + in->Below(8)), groups);
  if (!layout.ok()) {
    CHECK(absl::IsInvalidArgument(layout.status())) << layout.status();
    return;
  }
  size_t end = 0;  // slots hold their leaves, one after the other
  for (size_t leaf = 0; leaf < layout->slot_offset.size(); ++leaf) {
    CHECK_GE(layout->slot_offset[leaf], end);
    end = layout->slot_offset[leaf] +
          layout->rows * layout->observation_bytes[leaf];
  }
  CHECK_GE(layout->slot_bytes, end);
  v1::PlayReply reply;  // reused, as a stream does
  while (!in->empty()) {
    const int kind = in->Below(4);
    if (kind == 0) {
      v1::ActionBatch actions;
      for (const size_t bytes : layout->action_bytes) {
        if (bytes > 4096) return;
        actions.add_action()->resize(bytes * layout->rows);
      }
      in->Fill(Names(), &actions);
      const absl::Status fits =
          CheckActions(spec, *layout, v1::StepBatch(), actions);
      CHECK(fits.ok() || absl::StrContains(fits.message(), "actions.action"))
          << fits;
      v1::PlayRequest request;
      CHECK(ParseMessage(SerializeActions(actions), &request));
      CHECK_EQ(request.actions().SerializeAsString(),
               actions.SerializeAsString());
      continue;
    }
    std::string bytes;
    if (kind == 1) {
      bytes = in->Bytes();
    } else {
      v1::PlayReply made = MakeStep(*layout, in);
      if (kind == 2) in->Fill(Names(), &made);
      bytes = made.SerializeAsString();
    }
    if (!ParseMessage(ToBuffer(bytes), &reply)) {
      reply.Clear();
      continue;
    }
    if (!reply.has_step()) continue;
    const bool shared = in->Below(2) == 1;
    const absl::Status fits = CheckStep(spec, *layout, shared, reply.step());
    if (fits.ok()) {
      ReadAll(*layout, shared, reply.step());
    } else {
      CHECK(absl::IsInternal(fits)) << fits;
      CHECK(absl::StrContains(fits.message(), "step.")) << fits;
    }
  }
}

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flotilla::Input in(data, size);
  flotilla::Run(&in);
  return 0;
}
