#include "learner/nn/observation_encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

// [N, k, ...] as convolutions take it: [N, k * C, H, W].
torch::Tensor ChannelsFirst(const LeafSpec& spec, const torch::Tensor& x) {
  if (spec.shape.size() == 2) return x;
  return (spec.channels_last ? x.permute({0, 1, 4, 2, 3}) : x).flatten(1, 2);
}

}  // namespace

ObservationEncoder::ObservationEncoder(const std::string& name,
                                       const Spaces& spaces,
                                       const EncoderPlan& plan,
                                       v1::Activation activation)
    : relu_(activation == v1::RELU) {
  int64_t encoded = 0;
  for (const LeafEncoder& encoder : plan.leaf) {
    Leaf leaf;
    leaf.spec = spaces.observation[encoder.leaf];
    leaf.encoder = encoder;
    leaf.planned = PlanEncoder(
        plan.merged()
            ? absl::StrCat(name, ".leaf", leaf.spec.path.empty() ? "" : ".",
                           leaf.spec.path)
            : name,
        leaf.spec, encoder);
    if (leaf.spec.kind == LeafKind::kDiscrete) {
      leaf.offset = torch::zeros({leaf.spec.shape[0]}, torch::kInt64);
      for (int64_t i = 1; i < leaf.spec.shape[0]; ++i) {
        leaf.offset[i] = leaf.offset[i - 1] + leaf.spec.num_values[i - 1];
      }
    }
    relu_ |= leaf.spec.kind == LeafKind::kImage;
    encoded += EncodedWidth(leaf.spec, encoder);
    leaf_.push_back(std::move(leaf));
  }
  planned_trunk_ = PlanMlp(name, encoded, plan.trunk);
  features_ = plan.merged() ? plan.trunk.back() : encoded;
}

int64_t ObservationEncoder::CountParameters() const {
  int64_t total = flotilla::CountParameters(planned_trunk_);
  for (const Leaf& leaf : leaf_) {
    total += flotilla::CountParameters(leaf.planned);
  }
  return total;
}

void ObservationEncoder::Take(FlatParameters* parameters) {
  for (Leaf& leaf : leaf_) {
    leaf.layers = MakeLayers(leaf.planned, parameters);
    if (leaf.offset.defined())
      leaf.offset = leaf.offset.to(parameters->device());
  }
  trunk_ = MakeLayers(planned_trunk_, parameters);
}

const std::vector<Layer*> ObservationEncoder::layers() {
  std::vector<Layer*> all;
  for (Leaf& leaf : leaf_) {
    for (Layer& layer : leaf.layers) all.push_back(&layer);
  }
  for (Layer& layer : trunk_) all.push_back(&layer);
  return all;
}

bool ObservationEncoder::sees_images() const {
  return std::any_of(leaf_.begin(), leaf_.end(), [](const Leaf& leaf) {
    return leaf.spec.kind == LeafKind::kImage;
  });
}

void ObservationEncoder::Settle(bool bf16) {
  for (Leaf& leaf : leaf_) {
    if (leaf.spec.kind != LeafKind::kImage) continue;
    SettleLayers({.pixels = leaf.spec.dtype == v1::UINT8,
                  .bf16 = bf16,
                  .height = leaf.spec.height,
                  .width = leaf.spec.width},
                 &leaf.layers);
  }
}

void ObservationEncoder::Unsettle() {
  for (Layer* layer : layers()) {
    layer->settled_weight.reset();
    layer->settled_bias.reset();
  }
}

std::vector<torch::Tensor> ObservationEncoder::settled() const {
  std::vector<torch::Tensor> all;
  for (const Leaf& leaf : leaf_) {
    for (const Layer& layer : leaf.layers) {
      if (!layer.settled_weight.defined()) continue;
      all.push_back(layer.settled_weight);
      all.push_back(layer.settled_bias);
    }
  }
  return all;
}

torch::Tensor ObservationEncoder::Encode(const Leaf& leaf,
                                         const torch::Tensor& x, bool bf16,
                                         bool activate_last,
                                         int64_t learned) const {
  const bool image = leaf.spec.kind == LeafKind::kImage;
  ForwardOptions options;
  options.relu = image || relu_;
  options.activate_last = activate_last;
  options.residual = leaf.encoder.encoder == v1::RESNET;
  options.bf16 = bf16 && image;
  options.learned = learned;
  if (image) {
    return flotilla::Forward(leaf.layers, ChannelsFirst(leaf.spec, x), options);
  }
  if (leaf.spec.kind != LeafKind::kDiscrete) {
    return flotilla::Forward(leaf.layers, x.dim() > 2 ? x.flatten(1) : x,
                             options);
  }
  const torch::Tensor rows =
      torch::embedding(leaf.layers[0].weight,
                       x + leaf.offset);  // [N, .., K, E]
  return flotilla::Forward({leaf.layers.begin() + 1, leaf.layers.end()},
                           rows.flatten(1), options);
}

torch::Tensor ObservationEncoder::Forward(const Batch& batch, bool bf16,
                                          bool activate_last,
                                          int64_t learned) const {
  const auto seen = [&](const Leaf& leaf) {
    return batch.leaf[leaf.encoder.leaf];
  };
  if (trunk_.empty()) {
    return Encode(leaf_[0], seen(leaf_[0]), bf16, activate_last, learned);
  }
  std::vector<torch::Tensor> encoded;
  for (const Leaf& leaf : leaf_) {
    encoded.push_back(Encode(leaf, seen(leaf), bf16, /*activate_last=*/true));
  }
  ForwardOptions options;
  options.relu = relu_;
  return flotilla::Forward(
      trunk_, encoded.size() == 1 ? encoded[0] : torch::cat(encoded, 1),
      options);
}

}  // namespace flotilla
