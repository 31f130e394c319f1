#include "learner/kernels/mlp_shape.h"

#include <functional>
#include <numeric>
#include <utility>

namespace flotilla {
namespace {

class LayoutBuilder {
 public:
  void Add(std::string name, std::vector<int64_t> shape) {
    blocks_.push_back({std::move(name), end_, std::move(shape)});
    end_ += blocks_.back().size();
  }

  void AddLinear(const std::string& name, int in, int out) {
    Add(name + ".weight", {out, in});
    Add(name + ".bias", {out});
  }

  // Layers named as torch.nn.Sequential names them, activations between.
  // Returns the number that the next layer would have.
  int AddHidden(const std::string& name, const MlpShape& shape) {
    int in = shape.observations;
    int index = 0;
    for (const int out : shape.hidden) {
      AddLinear(name + "." + std::to_string(index), in, out);
      in = out;
      index += 2;
    }
    return index;
  }

  std::vector<ParameterBlock> Take() { return std::move(blocks_); }

 private:
  int64_t end_ = 0;
  std::vector<ParameterBlock> blocks_;
};

}  // namespace

int64_t ParameterBlock::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1},
                         std::multiplies<>());
}

std::vector<ParameterBlock> ParameterLayout(const MlpShape& shape) {
  LayoutBuilder layout;
  if (shape.continuous) layout.Add("actor_logstd", {shape.actions});
  const int width = shape.hidden.back();
  if (shape.output == MlpOutput::kSquashedGaussian) {
    layout.AddHidden("actor", shape);
    layout.AddLinear("actor_mean", width, shape.actions);
    layout.AddLinear("actor_logstd", width, shape.actions);
    return layout.Take();
  }
  if (shape.output == MlpOutput::kTwinCritics) {
    for (const std::string name : {"critic1", "critic2"}) {
      layout.AddHidden(name, shape);
      layout.AddLinear(name + "_q", width, 1);
    }
    return layout.Take();
  }
  if (shape.output != MlpOutput::kActorCritic) {
    const bool dueling = shape.output == MlpOutput::kDuelingQ;
    layout.AddHidden("encoder", shape);
    layout.AddLinear(dueling ? "advantage.0" : "q.0", width, width);
    layout.AddLinear(dueling ? "advantage.2" : "q.2", width, shape.actions);
    if (dueling) {
      layout.AddLinear("value.0", width, width);
      layout.AddLinear("value.2", width, 1);
    }
    return layout.Take();
  }
  if (shape.share_trunk) {
    layout.AddHidden("trunk", shape);
    layout.AddLinear("policy", width, shape.actions);
    layout.AddLinear("value", width, 1);
    return layout.Take();
  }
  const std::string actor = shape.continuous ? "actor_mean" : "actor";
  const int last = layout.AddHidden("critic", shape);
  layout.AddLinear("critic." + std::to_string(last), width, 1);
  layout.AddHidden(actor, shape);
  layout.AddLinear(actor + "." + std::to_string(last), width, shape.actions);
  return layout.Take();
}

int64_t ParameterCount(const MlpShape& shape) {
  const std::vector<ParameterBlock> layout = ParameterLayout(shape);
  return layout.back().offset + layout.back().size();
}

}  // namespace flotilla
