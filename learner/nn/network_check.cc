#include "learner/nn/network_check.h"

#include <exception>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

absl::Status Refuse(const std::string& problem) {
  return absl::InvalidArgumentError(problem);
}

absl::Status CheckTensor(const std::string& name, const torch::Tensor& tensor,
                         const Shapes& wanted, const std::string& meaning,
                         torch::Device device) {
  if (!tensor.defined()) {
    return Refuse(absl::StrCat("its ", name, " is undefined, want ",
                               ShapeText(wanted[0]), ": ", meaning));
  }
  const std::vector<int64_t> shape = tensor.sizes().vec();
  bool fits = false;
  std::vector<std::string> texts;
  for (const std::vector<int64_t>& one : wanted) {
    fits = fits || shape == one;
    texts.push_back(ShapeText(one));
  }
  if (!fits) {
    return Refuse(absl::StrCat("its ", name, " has shape ", ShapeText(shape),
                               ", want ", absl::StrJoin(texts, " or "), ": ",
                               meaning));
  }
  if (tensor.scalar_type() != torch::kFloat32 || tensor.device() != device) {
    return Refuse(absl::StrCat(
        "its ", name, " is ", c10::toString(tensor.scalar_type()), " on ",
        tensor.device().str(), ", want Float on ", device.str()));
  }
  return absl::OkStatus();
}

absl::Status CheckParameters(const Network& net, torch::Device device) {
  const FlatParameters& flat = net.Flat();
  if (!flat.parameters.defined() || flat.size() == 0) {
    return Refuse("it has no parameters: there is nothing to learn");
  }
  if (flat.parameters.scalar_type() != torch::kFloat32 ||
      flat.device() != device || flat.gradients.numel() != flat.size()) {
    return Refuse(absl::StrCat(
        "its parameters are not float32 on ", device.str(),
        " with a gradient for each; make them with FlatParameters::Take or "
        "Adopt"));
  }
  std::set<std::string> names;
  for (const NamedTensor& t : net.Named()) {
    if (!names.insert(t.name).second) {
      return Refuse(
          absl::StrCat("two of its parameters are named \"", t.name, "\""));
    }
  }
  return absl::OkStatus();
}

// Of steps * rows observations.
absl::Status CheckForward(const Network& net, const Spaces& spaces,
                          int64_t rows, int64_t steps, torch::Device device,
                          NetworkOutput* out) {
  const int64_t n = rows * steps, A = spaces.action.continuous;
  Sequences sequences;
  if (net.recurrent()) {
    sequences.state = torch::zeros({rows, net.state_size()}, device);
    sequences.keep = torch::ones({steps, rows, 1}, device);
  }
  // Of zeros alone, layers without a bias make zeros, and gradients of zero.
  *out = net.Forward(BlankBatch(spaces, n, device, /*numbers=*/1), sequences);
  RETURN_IF_ERROR(CheckTensor("policy", out->policy,
                              {{n, spaces.action.outputs()}},
                              PolicyColumns(spaces.action), device));
  RETURN_IF_ERROR(CheckTensor("value", out->value, {{n}},
                              "one number an observation", device));
  if (A > 0) {
    RETURN_IF_ERROR(CheckTensor("log_std", out->log_std, {{A}, {n, A}},
                                "one for each continuous value", device));
  }
  if (!net.recurrent() || torch::GradMode::is_enabled()) {
    return absl::OkStatus();
  }
  return CheckTensor("state", out->state, {{rows, net.state_size()}},
                     "what it remembers", device);
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string PolicyColumns(const ActionSpace& action) {
  std::string logits, means;
  if (action.choices() == 1) {
    logits = absl::StrCat("one logit for each of the action's ",
                          action.logits(), " values");
  } else if (action.choices() > 1) {
    logits = absl::StrCat("one logit for each value of the action's ",
                          action.choices(), " choices (",
                          absl::StrJoin(action.num_values, " + "), ")");
  }
  if (action.continuous > 0) {
    means = absl::StrCat("one mean for each of the action's ",
                         action.continuous, " continuous values");
  }
  return absl::StrCat(logits, logits.empty() || means.empty() ? "" : ", then ",
                      means);
}

Batch BlankBatch(const Spaces& spaces, int64_t rows, torch::Device device,
                 float numbers) {
  Batch blank;
  for (const LeafSpec& leaf : spaces.observation) {
    const torch::Dtype type = TorchType(leaf.dtype);
    blank.leaf.push_back(torch::full(
        BatchShape(leaf, rows), type == torch::kFloat32 ? numbers : 0.0f,
        torch::TensorOptions(type).device(device)));
  }
  return blank;
}

absl::Status CheckNetwork(const Network& net, const Spaces& spaces,
                          torch::Device device) {
  RETURN_IF_ERROR(CheckParameters(net, device));
  try {
    NetworkOutput out;
    {
      torch::NoGradGuard no_grad;
      // One row too, for squeeze() takes more from it.
      for (const int64_t rows : {1, 2}) {
        RETURN_IF_ERROR(
            CheckForward(net, spaces, rows, /*steps=*/1, device, &out));
      }
      const std::unique_ptr<Network> copy = net.Clone();
      if (copy == nullptr || copy->num_parameters() != net.num_parameters() ||
          copy->parameters().is_alias_of(net.parameters())) {
        return Refuse("its Clone is no copy with parameters of its own");
      }
      NetworkOutput same;
      RETURN_IF_ERROR(
          CheckForward(*copy, spaces, 2, /*steps=*/1, device, &same));
      if (!torch::equal(same.policy, out.policy) ||
          !torch::equal(same.value, out.value)) {
        return Refuse("its Clone says something else than it does");
      }
    }
    RETURN_IF_ERROR(CheckForward(net, spaces, 2, /*steps=*/3, device, &out));
    net.gradients().zero_();
    torch::Tensor sum = out.policy.sum() + out.value.sum();
    if (spaces.action.continuous > 0) sum = sum + out.log_std.sum();
    if (!sum.requires_grad()) {
      return Refuse(
          "no gradient flows from what it puts out to its parameters: compute "
          "it from the tensors that FlatParameters::leaf holds");
    }
    sum.backward();
    const bool any = net.gradients().count_nonzero().item<int64_t>() > 0;
    net.gradients().zero_();
    if (!any) {
      return Refuse(
          "gradients do not arrive in its FlatParameters: are the tensors that "
          "it computes with others than FlatParameters::leaf?");
    }
  } catch (const std::exception& thrown) {
    const std::string text = thrown.what();
    return Refuse(absl::StrCat("its Forward fails when it is tried: ",
                               text.substr(0, text.find('\n'))));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
