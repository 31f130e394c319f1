#include "learner/nn/torchscript_network.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "learner/nn/network_check.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

constexpr char kLogStd[] = "actor_logstd";

// Of what LibTorch throws, the line that says what is wrong: it puts TorchScript's
// frames before it, and its own behind.
std::string Gist(const std::exception& thrown) {
  std::string text = thrown.what();
  text.resize(std::min(text.size(), text.find("\nException raised from")));
  const std::string whole(absl::StripAsciiWhitespace(text));
  return whole.substr(whole.rfind('\n') + 1);
}

std::string TypeName(torch::Dtype type) {
  switch (type) {
    case torch::kFloat32:
      return "float32";
    case torch::kFloat64:
      return "float64";
    case torch::kUInt8:
      return "uint8";
    case torch::kInt64:
      return "int64";
    default:
      return absl::AsciiStrToLower(c10::toString(type));
  }
}

// "uint8 [1, 4, 84, 84]"
std::string Shown(const LeafSpec& leaf, int64_t rows) {
  return absl::StrCat(TypeName(TorchType(leaf.dtype)), " ",
                      ShapeText(BatchShape(leaf, rows)));
}

bool SameMemory(const torch::Tensor& a, const torch::Tensor& b) {
  return a.is_same(b) ||
         (a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
          a.sizes() == b.sizes() && a.strides() == b.strides());
}

// The parameters that learn, by their first name each: what is one parameter
// under several names becomes one tensor.
std::vector<NamedTensor> Learned(const torch::jit::Module& module) {
  std::vector<NamedTensor> learned;
  for (auto part : module.named_modules()) {
    for (const auto& p : part.value.named_parameters(/*recurse=*/false)) {
      if (!p.value.requires_grad() || p.value.numel() == 0) continue;
      const NamedTensor* before = nullptr;
      for (const NamedTensor& t : learned) {
        if (SameMemory(t.tensor, p.value)) before = &t;
      }
      if (before == nullptr) {
        const std::string prefix = part.name.empty() ? "" : part.name + ".";
        learned.push_back({prefix + p.name, p.value});
      } else if (!before->tensor.is_same(p.value)) {
        part.value.setattr(p.name, before->tensor);
      }
    }
  }
  return learned;
}

// The tensors that a module holds, and how often each was written to.
struct HeldTensor {
  std::string name;
  torch::Tensor tensor;
  uint32_t version;
};
std::vector<HeldTensor> Held(const torch::jit::Module& module) {
  std::vector<HeldTensor> held;
  for (const auto& attribute : module.named_attributes()) {
    if (!attribute.value.isTensor()) continue;
    const torch::Tensor tensor = attribute.value.toTensor();
    held.push_back(
        {attribute.name, tensor,
         tensor.defined() ? static_cast<uint32_t>(tensor._version()) : 0});
  }
  return held;
}

}  // namespace

absl::Status TorchScriptNetwork::Refuse(const std::string& problem) const {
  return absl::InvalidArgumentError(
      absl::StrCat(origin_->title, ": ", problem));
}

absl::StatusOr<torch::jit::Module> TorchScriptNetwork::Load(
    const Origin& origin) {
  try {
    std::istringstream file(origin.file);
    torch::jit::Module module = torch::jit::load(file, origin.device);
    module.eval();
    return module;
  } catch (const std::exception& thrown) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin.title, " is no TorchScript that LibTorch ",
                     TORCH_VERSION, " can read (", Gist(thrown),
                     "); make it with torch.jit.script(module).save(...)"));
  }
}

absl::StatusOr<std::unique_ptr<TorchScriptNetwork>> TorchScriptNetwork::Make(
    const Spaces& spaces, const v1::ModelConfig& config, torch::Device device) {
  const std::string title =
      absl::StrCat("model.torchscript \"", config.torchscript(), "\"");
  std::optional<std::string> file = WholeFile(config.torchscript());
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat(title, " cannot be read"));
  }
  auto origin = std::make_shared<Origin>();
  origin->spaces = spaces;
  origin->seen = spaces.encoded();
  origin->title = title;
  origin->file = *std::move(file);
  origin->device = device;
  origin->initial_log_std = config.initial_log_std();

  std::unique_ptr<TorchScriptNetwork> net(new TorchScriptNetwork);
  net->origin_ = origin;
  ASSIGN_OR_RETURN(net->module_, Load(*origin));
  RETURN_IF_ERROR(net->CheckForward());
  size_t outputs = 0;
  // One row too, for squeeze() takes more from it; two, for what was traced with
  // one.
  for (const int64_t rows : {1, 2}) {
    RETURN_IF_ERROR(net->Try(rows, &outputs));
  }
  origin->own_log_std = spaces.action.continuous > 0 && outputs == 2;
  RETURN_IF_ERROR(net->Adopt());
  for (const HeldTensor& held : Held(net->module_)) {
    if (!absl::EndsWith(held.name, "running_mean")) continue;
    LOG(WARNING) << title << ": \"" << held.name
                 << "\" stays as the file has it; a BatchNorm does not learn "
                    "what it sees";
    break;
  }
  return net;
}

absl::Status TorchScriptNetwork::CheckForward() const {
  const auto forward = module_.find_method("forward");
  if (!forward) return Refuse("it has no method forward(observation)");
  const auto& arguments = forward->function().getSchema().arguments();
  std::vector<std::string> wanted;  // by forward, beside self
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].default_value()) wanted.push_back(arguments[i].name());
  }
  if (arguments.size() < 2 || wanted.size() > 1) {
    return Refuse(absl::StrCat(
        "its forward takes (", absl::StrJoin(wanted, ", "),
        "), want one argument, the observation; modules with a recurrent state "
        "are not supported yet"));
  }
  const std::vector<LeafSpec>& leaf = origin_->spaces.observation;
  const bool one = origin_->seen.size() == 1;
  const auto kind = arguments[1].type()->kind();
  if (kind == (one ? c10::TypeKind::TensorType : c10::TypeKind::DictType)) {
    return absl::OkStatus();
  }
  std::vector<std::string> seen;
  for (const int i : origin_->seen) {
    seen.push_back(
        one ? absl::StrCat("Tensor, ", Shown(leaf[i], 1))
            : absl::StrCat("\"", leaf[i].path, "\": ", Shown(leaf[i], 1)));
  }
  return Refuse(absl::StrCat(
      "its forward takes ", arguments[1].type()->annotation_str(),
      ", but the observation is ", one ? "a " : "a Dict[str, Tensor], ",
      absl::StrJoin(seen, ", ")));
}

absl::Status TorchScriptNetwork::Try(int64_t rows, size_t* outputs) const {
  torch::NoGradGuard no_grad;
  const Batch zeros = BlankBatch(origin_->spaces, rows, origin_->device);
  std::vector<std::string> seen;
  for (const int i : origin_->seen) {
    const LeafSpec& leaf = origin_->spaces.observation[i];
    seen.push_back(absl::StrCat(LeafTitle(leaf), " ", Shown(leaf, rows)));
  }
  const std::vector<HeldTensor> before = Held(module_);
  c10::IValue returned;
  try {
    returned = Call(zeros);
  } catch (const std::exception& thrown) {
    return Refuse(absl::StrCat("its forward fails on zeros (",
                               absl::StrJoin(seen, ", "), "): ", Gist(thrown)));
  }
  RETURN_IF_ERROR(Read(returned, rows).status());
  *outputs = returned.toTupleRef().elements().size();
  for (const torch::Tensor& leaf : zeros.leaf) {
    if (leaf._version() == 0) continue;
    return Refuse(
        "its forward writes into the observation, which is not its own; "
        "x = x / 255 makes a new tensor where x /= 255 does not");
  }
  const std::vector<HeldTensor> after = Held(module_);
  for (size_t i = 0; i < before.size(); ++i) {
    if (after[i].tensor.is_same(before[i].tensor) &&
        after[i].version == before[i].version) {
      continue;
    }
    return Refuse(absl::StrCat(
        "its forward changes its tensor \"", before[i].name,
        "\", which the copies that act and those of other learners would not "
        "see; a module may remember nothing between calls"));
  }
  return absl::OkStatus();
}

absl::Status TorchScriptNetwork::Adopt() {
  std::vector<NamedTensor> learned = Learned(module_);
  if (learned.empty()) {
    return Refuse(
        "it has no parameter that requires a gradient (was it frozen?): there "
        "is nothing to learn");
  }
  for (const NamedTensor& t : learned) {
    if (t.tensor.scalar_type() != torch::kFloat32) {
      return Refuse(absl::StrCat("its parameter \"", t.name, "\" is ",
                                 TypeName(t.tensor.scalar_type()),
                                 ", want float32: save module.float()"));
    }
    if (origin_->own_log_std && t.name == kLogStd) {
      return Refuse(
          absl::StrCat("its forward returns no log_std, but it has "
                       "a parameter \"",
                       kLogStd, "\": return it as the third output"));
    }
  }
  if (origin_->own_log_std) {
    log_std_ =
        torch::full({origin_->spaces.action.continuous},
                    origin_->initial_log_std, learned[0].tensor.options())
            .detach();
    learned.push_back({kLogStd, log_std_});
  }
  flat_ = FlatParameters::Adopt(learned);
  return absl::OkStatus();
}

void TorchScriptNetwork::Initialize(uint64_t) {}

c10::IValue TorchScriptNetwork::Call(const Batch& observation) const {
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  if (origin_->seen.size() == 1) {
    return module_.forward({observation.leaf[origin_->seen[0]]});
  }
  c10::Dict<std::string, torch::Tensor> by_path;
  for (const int i : origin_->seen) {
    by_path.insert(origin_->spaces.observation[i].path, observation.leaf[i]);
  }
  return module_.forward({by_path});
}

absl::StatusOr<NetworkOutput> TorchScriptNetwork::Read(
    const c10::IValue& returned, int64_t rows) const {
  const ActionSpace& action = origin_->spaces.action;
  const int64_t A = action.continuous;
  const std::string want =
      A > 0 ? "(policy, value) or (policy, value, log_std)" : "(policy, value)";
  if (!returned.isTuple()) {
    return Refuse(absl::StrCat("its forward returns ",
                               returned.type()->annotation_str(),
                               ", want a tuple ", want));
  }
  const auto& outputs = returned.toTupleRef().elements();
  if (outputs.size() < 2 || outputs.size() > (A > 0 ? 3 : 2)) {
    return Refuse(absl::StrCat(
        "its forward returns ", outputs.size(), " outputs, want ", want,
        outputs.size() < 3 ? ""
        : A > 0
            ? "; a recurrent state is not supported yet"
            : "; a log_std is for continuous actions, and a recurrent state "
              "is not supported yet"));
  }
  const char* const names[] = {"policy", "value", "log_std"};
  std::vector<torch::Tensor> tensors;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].isTensor()) {
      return Refuse(absl::StrCat("its ", names[i], " is ",
                                 outputs[i].type()->annotation_str(),
                                 ", want a Tensor"));
    }
    tensors.push_back(outputs[i].toTensor());
    if (tensors[i].scalar_type() != torch::kFloat32) {
      return Refuse(absl::StrCat("its ", names[i], " is ",
                                 TypeName(tensors[i].scalar_type()),
                                 ", want float32"));
    }
  }
  const auto has = [&](size_t i) {
    return absl::StrCat("its ", names[i], " has shape ",
                        ShapeText(tensors[i].sizes().vec()), ", want ");
  };
  const std::vector<int64_t> of_policy = {rows, action.outputs()};
  NetworkOutput out;
  out.policy = tensors[0];
  if (out.policy.sizes() != of_policy) {
    return Refuse(absl::StrCat(has(0), ShapeText(of_policy), ": ",
                               PolicyColumns(action)));
  }
  if (tensors[1].numel() != rows || tensors[1].dim() > 2) {
    return Refuse(absl::StrCat(has(1), ShapeText({rows}), " or ",
                               ShapeText({rows, 1}),
                               ": one number an observation"));
  }
  out.value = tensors[1].reshape({rows});
  out.log_std = log_std_;
  if (tensors.size() < 3) return out;
  out.log_std = tensors[2];
  if (out.log_std.dim() == 2 && out.log_std.size(0) == 1) {
    out.log_std = out.log_std.squeeze(0);
  }
  if (out.log_std.sizes() != std::vector<int64_t>{A} &&
      out.log_std.sizes() != std::vector<int64_t>{rows, A}) {
    return Refuse(absl::StrCat(has(2), ShapeText({A}), " or ",
                               ShapeText({rows, A}),
                               ": one for each continuous value"));
  }
  return out;
}

NetworkOutput TorchScriptNetwork::Forward(const Batch& observation,
                                          const Sequences&) const {
  absl::StatusOr<NetworkOutput> out =
      Read(Call(observation), observation.size());
  if (!out.ok()) throw std::runtime_error(std::string(out.status().message()));
  return *std::move(out);
}

std::unique_ptr<Network> TorchScriptNetwork::Clone() const {
  std::unique_ptr<TorchScriptNetwork> copy(new TorchScriptNetwork);
  copy->origin_ = origin_;
  copy->module_ = Load(*origin_).value();  // as it did before
  CHECK(copy->Adopt().ok());
  torch::NoGradGuard no_grad;
  copy->parameters().copy_(parameters());
  return copy;
}

}  // namespace flotilla
