#include "learner/rollout/batch.h"

namespace flotilla {

torch::Dtype TorchType(v1::DType dtype) {
  switch (dtype) {
    case v1::UINT8:
      return torch::kUInt8;
    case v1::INT64:
      return torch::kInt64;
    default:
      return torch::kFloat32;
  }
}

Batch Borrow(const Observations& seen, const Spaces& spaces) {
  Batch batch;
  for (size_t i = 0; i < spaces.observation.size(); ++i) {
    const LeafSpec& spec = spaces.observation[i];
    batch.leaf.push_back(torch::from_blob(const_cast<void*>(seen.leaf[i]),
                                          BatchShape(spec, seen.rows),
                                          TorchType(spec.dtype)));
  }
  return batch;
}

std::vector<int64_t> BatchShape(const LeafSpec& spec, int64_t rows) {
  std::vector<int64_t> shape = {rows};
  if (spec.stack > 1 || spec.kind == LeafKind::kImage) {
    shape.push_back(spec.stack);
  }
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return shape;
}

Actions MakeActions(const ActionSpace& space, std::vector<int64_t> leading,
                    bool pinned) {
  const auto make = [&](int64_t width, torch::Dtype dtype) {
    std::vector<int64_t> shape = leading;
    shape.push_back(width);
    return torch::zeros(
        shape, torch::TensorOptions().dtype(dtype).pinned_memory(pinned));
  };
  Actions actions;
  if (space.choices() > 0) {
    actions.discrete = make(space.choices(), torch::kInt64);
  }
  if (space.continuous > 0) {
    actions.continuous = make(space.continuous, torch::kFloat32);
  }
  return actions;
}

}  // namespace flotilla
