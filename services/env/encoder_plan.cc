#include "services/env/encoder_plan.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/config.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr int64_t kLeastNature = 36;
constexpr int64_t kEmbeddingWidth = 64;

std::vector<int64_t> Widths(
    const google::protobuf::RepeatedField<int32_t>& given,
    std::vector<int64_t> unset) {
  if (given.empty()) return unset;
  return {given.begin(), given.end()};
}

const v1::LeafConfig* ConfigOf(const v1::ModelConfig& model,
                               const LeafSpec& leaf) {
  for (const v1::LeafConfig& config : model.leaf()) {
    if (config.path() == leaf.path && leaf.parts.size() == 1) return &config;
  }
  return nullptr;
}

bool IsCnn(v1::Encoder encoder) {
  return encoder == v1::NATURE_CNN || encoder == v1::RESNET;
}

absl::Status CheckFits(const LeafSpec& leaf, v1::Encoder encoder) {
  const bool image = leaf.kind == LeafKind::kImage;
  if (encoder == v1::NATURE_CNN && image &&
      (leaf.height < kLeastNature || leaf.width < kLeastNature)) {
    return absl::InvalidArgumentError(absl::StrCat(
        LeafTitle(leaf), ": frames of ", leaf.height, " x ", leaf.width,
        " are too small for NATURE_CNN; it needs ", kLeastNature, " x ",
        kLeastNature, ", RESNET takes any size"));
  }
  if (IsCnn(encoder) == image && encoder != v1::EMBEDDING) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      LeafTitle(leaf), ": encoder ", v1::Encoder_Name(encoder),
      " does not fit ",
      image ? "frames; use NATURE_CNN or RESNET" : "a vector; use MLP",
      " or leave it out"));
}

}  // namespace

int64_t NatureCnnOut(int64_t size) {
  for (const auto& [kernel, stride] :
       {std::pair<int64_t, int64_t>{8, 4}, {4, 2}, {3, 1}}) {
    if (size < kernel) return 0;
    size = (size - kernel) / stride + 1;
  }
  return size;
}

int64_t FlatWidth(const LeafSpec& leaf, const LeafEncoder& encoder) {
  switch (encoder.encoder) {
    case v1::NATURE_CNN:
      return encoder.channels[2] * NatureCnnOut(leaf.height) *
             NatureCnnOut(leaf.width);
    case v1::RESNET:
      return 32 * ((leaf.height + 7) / 8) * ((leaf.width + 7) / 8);
    case v1::EMBEDDING:
      return leaf.stack * leaf.elements() * encoder.hidden[0];
    default:
      return leaf.stack * leaf.elements();
  }
}

int64_t EncodedWidth(const LeafSpec& leaf, const LeafEncoder& encoder) {
  const size_t before = encoder.encoder == v1::EMBEDDING ? 1 : 0;
  return encoder.hidden.size() > before ? encoder.hidden.back()
                                        : FlatWidth(leaf, encoder);
}

absl::StatusOr<EncoderPlan> PlanEncoders(const Spaces& spaces,
                                         const v1::ModelConfig& model) {
  EncoderPlan plan;
  const std::vector<int> encoded = spaces.encoded();
  if (!OwnNetworkField(model).empty()) {  // it encodes as it likes
    for (const int index : encoded) plan.leaf.emplace_back().leaf = index;
    return plan;
  }
  const bool alone = encoded.size() == 1 &&
                     spaces.observation[encoded[0]].kind != LeafKind::kDiscrete;
  bool images = false, taken = false;
  for (const int index : encoded) {
    const LeafSpec& leaf = spaces.observation[index];
    const v1::LeafConfig* config = ConfigOf(model, leaf);
    const bool image = leaf.kind == LeafKind::kImage;
    images |= image;
    LeafEncoder e;
    e.leaf = index;
    e.encoder = config != nullptr ? config->encoder() : v1::ENCODER_AUTO;
    if (e.encoder == v1::ENCODER_AUTO && (alone || image)) {
      e.encoder = model.encoder();
      taken |= alone || IsCnn(e.encoder);
    }
    if (leaf.kind == LeafKind::kDiscrete) {
      e.encoder = v1::EMBEDDING;
      taken |= model.encoder() == v1::EMBEDDING;
    }
    if (e.encoder == v1::ENCODER_AUTO || (!alone && e.encoder == v1::MLP)) {
      const bool small =
          leaf.height < kLeastNature || leaf.width < kLeastNature;
      e.encoder = !image ? v1::MLP : small ? v1::RESNET : v1::NATURE_CNN;
    }
    if (leaf.kind != LeafKind::kDiscrete) {
      RETURN_IF_ERROR(CheckFits(leaf, e.encoder));
    }
    std::vector<int64_t> widths;
    if (e.encoder == v1::NATURE_CNN) widths = {512};
    if (e.encoder == v1::RESNET) widths = {256};
    if (e.encoder == v1::EMBEDDING) widths = {kEmbeddingWidth};
    if (alone && e.encoder == v1::MLP) widths = {64, 64};
    if (alone) widths = Widths(model.hidden(), widths);
    if (config != nullptr) widths = Widths(config->hidden(), widths);
    e.hidden = widths;
    e.channels = Widths(model.conv_channels(), {32, 64, 64});
    if (config != nullptr) {
      e.channels = Widths(config->conv_channels(), e.channels);
    }
    if (e.channels.size() != 3) {
      return absl::InvalidArgumentError(absl::StrCat(
          LeafTitle(leaf), ": conv_channels has ", e.channels.size(),
          " values, want the widths of three convolutions"));
    }
    if (config != nullptr && IsCnn(e.encoder) && config->hidden_size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          LeafTitle(leaf), ": model.leaf has ", config->hidden_size(),
          " widths; ", v1::Encoder_Name(e.encoder),
          " takes one, of its last linear layer"));
    }
    if (config != nullptr && config->conv_channels_size() > 0 &&
        e.encoder != v1::NATURE_CNN) {
      return absl::InvalidArgumentError(absl::StrCat(
          LeafTitle(leaf), ": model.leaf has conv_channels, which ",
          v1::Encoder_Name(e.encoder), " does not read; remove it"));
    }
    plan.leaf.push_back(std::move(e));
  }
  // Of several leaves MLP is what all but images have, which most
  // configurations for one vector say.
  taken |= model.encoder() == v1::MLP;
  if (model.encoder() != v1::ENCODER_AUTO && !alone && !taken) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.encoder is ", v1::Encoder_Name(model.encoder()),
        ", which no leaf of the observation takes; leave it out, or say it of "
        "a leaf: --set 'model.leaf={path: \"...\" encoder: ",
        v1::Encoder_Name(model.encoder()), "}'"));
  }
  if (!alone) {
    plan.trunk = Widths(model.hidden(), images ? std::vector<int64_t>{512}
                                               : std::vector<int64_t>{64, 64});
  }
  return plan;
}

}  // namespace flotilla
