#include "learner/kernels/isa/workspace.h"

#include <algorithm>

#include "glog/logging.h"

namespace flotilla {
namespace {

bool IsQ(const MlpShape& shape) {
  return shape.output == MlpOutput::kQ || shape.output == MlpOutput::kDuelingQ;
}

void CheckShape(const MlpShape& shape) {
  CHECK_GE(shape.observations, 1) << "an MLP needs observations";
  CHECK_GE(shape.actions, 1) << "an MLP needs actions";
  CHECK(!shape.hidden.empty()) << "an MLP needs a hidden layer";
  for (const int width : shape.hidden) {
    CHECK_GE(width, 1) << "a hidden layer needs a width";
  }
  CHECK(!IsQ(shape) || shape.activation == Activation::kRelu)
      << "a Q network's layers are ReLU";
  CHECK(shape.output == MlpOutput::kActorCritic || !shape.continuous)
      << "that is an actor-critic's";
  CHECK(shape.choices.empty() ||
        (shape.output == MlpOutput::kActorCritic && !shape.continuous))
      << "several choices are an actor-critic's";
  for (const int values : shape.choices) {
    CHECK_GE(values, 1) << "a choice needs a value";
  }
  CHECK(shape.output == MlpOutput::kActorCritic || !shape.bfloat16)
      << "an actor-critic is of bfloat16";
  CHECK(shape.output != MlpOutput::kTwinCritics || shape.actions == 1)
      << "a critic has one output";
}

// Hands out places, in the parameters and in the workspace.
class Planner {
 public:
  Planner(const MlpShape& shape, bool training)
      : shape_(shape), training_(training) {}

  void Plan(std::vector<LayerPlan>* layers, MlpPlan* plan);

 private:
  int64_t Parameter(int64_t size) {
    const int64_t at = parameters_;
    parameters_ += size;
    return at;
  }

  int64_t Space(int64_t size) {
    const int64_t at = workspace_;
    workspace_ += (size + kPad - 1) / kPad * kPad;
    return at;
  }

  // `to_input`: its inputs' gradient is wanted too.
  LayerPlan PlanLayer(int in, int out, bool to_input);
  void PlanPart(int out, LayerPlan* layer);
  HeadPlan PlanHead(int rows, int plane, int first_in);
  void PlanHidden(LayerPlan* layers, StackPlan* stack);
  void PlanBranches(LayerPlan* layer, StackPlan* stack);
  void PlanHeads(int stack_index, StackPlan* stack);
  void PlanHeadSpace(StackPlan* stack);
  int StackCount() const;
  void PlanGradients(MlpPlan* plan, LayerPlan* layers, int layer_count);
  void PlanPairs(const std::vector<LayerPlan>& layers, MlpPlan* plan);

  const MlpShape& shape_;
  const bool training_;
  const int tile_rows_ = shape_.bfloat16 ? kTileRows : kFloatTileRows;
  int64_t parameters_ = 0;
  int64_t workspace_ = 0;
};

LayerPlan Planner::PlanLayer(int in, int out, bool to_input) {
  LayerPlan layer = {};
  layer.in = in;
  layer.out = out;
  layer.in_pad = RoundUp(in);
  layer.out_pad = RoundUp(out);
  layer.forward_weight = Space(int64_t{in} * layer.out_pad);
  layer.forward_bias = Space(layer.out_pad);
  layer.output = Space(int64_t{tile_rows_} * layer.out_pad);
  if (shape_.bfloat16) {
    layer.forward_pairs = Space(int64_t{PairsOf(in)} * layer.out_pad);
  }
  if (training_ && to_input) {
    layer.backward_weight = Space(int64_t{out} * layer.in_pad);
    if (shape_.bfloat16) {
      layer.backward_pairs = Space(int64_t{PairsOf(out)} * layer.in_pad);
    }
  }
  layer.gradient_transposed =
      int64_t{in} * layer.out_pad < int64_t{out} * layer.in_pad;
  return layer;
}

// The next `out` of the layer's outputs.
void Planner::PlanPart(int out, LayerPlan* layer) {
  LayerPart& part = layer->parts[layer->part_count];
  part.first = layer->part_count * out;
  part.out = out;
  part.weight = Parameter(int64_t{layer->in} * out);
  part.bias = Parameter(out);
  ++layer->part_count;
}

HeadPlan Planner::PlanHead(int rows, int plane, int first_in) {
  HeadPlan head = {};
  head.rows = rows;
  head.plane = plane;
  head.first_in = first_in;
  head.in = shape_.hidden.back();
  head.weight = Parameter(int64_t{rows} * shape_.hidden.back());
  head.bias = Parameter(rows);
  return head;
}

void Planner::PlanHidden(LayerPlan* layers, StackPlan* stack) {
  int in = shape_.observations;
  for (size_t i = 0; i < shape_.hidden.size(); ++i) {
    const bool to_input = i > 0 || shape_.output == MlpOutput::kTwinCritics;
    layers[i] = PlanLayer(in, shape_.hidden[i], to_input);
    PlanPart(shape_.hidden[i], &layers[i]);
    in = shape_.hidden[i];
  }
  stack->layers = layers;
  stack->layer_count = static_cast<int>(shape_.hidden.size());
}

// The layers of a Q network's heads as one layer, each head seeing its own half.
void Planner::PlanBranches(LayerPlan* layer, StackPlan* stack) {
  const int width = shape_.hidden.back();
  stack->head_count = shape_.output == MlpOutput::kDuelingQ ? 2 : 1;
  *layer = PlanLayer(width, stack->head_count * width, /*to_input=*/true);
  ++stack->layer_count;
  for (int i = 0; i < stack->head_count; ++i) {
    PlanPart(width, layer);
    stack->heads[i] =
        PlanHead(i == 0 ? shape_.actions : 1, i == 0 ? 0 : shape_.actions,
                 /*first_in=*/i * width);
  }
}

int Planner::StackCount() const {
  switch (shape_.output) {
    case MlpOutput::kActorCritic:
      return shape_.share_trunk ? 1 : 2;
    case MlpOutput::kTwinCritics:
      return 2;
    default:
      return 1;
  }
}

// Of networks whose heads see the last hidden layer as it is.
void Planner::PlanHeads(int stack_index, StackPlan* stack) {
  const auto add = [&](int rows, int plane) {
    stack->heads[stack->head_count++] = PlanHead(rows, plane, 0);
  };
  const int A = shape_.actions;
  if (shape_.output == MlpOutput::kSquashedGaussian) {
    add(A, 0);
    add(A, A);
  } else if (shape_.output == MlpOutput::kTwinCritics) {
    add(1, stack_index);
  } else {
    if (shape_.share_trunk || stack_index == 1) add(A, 0);
    if (shape_.share_trunk || stack_index == 0) add(1, A);
  }
}

void Planner::PlanHeadSpace(StackPlan* stack) {
  stack->plane = stack->heads[0].plane;
  for (int i = 0; i < stack->head_count; ++i) {
    stack->rows += stack->heads[i].rows;
  }
  const LayerPlan& last = stack->layers[stack->layer_count - 1];
  stack->head_weight = Space(int64_t{stack->rows} * last.out_pad);
  stack->head_bias = Space(stack->rows);
}

void Planner::PlanGradients(MlpPlan* plan, LayerPlan* layers, int layer_count) {
  plan->gradients = workspace_;
  plan->log_std_gradient = Space(shape_.actions);
  for (int i = 0; i < layer_count; ++i) {
    LayerPlan& layer = layers[i];
    layer.weight_gradient =
        Space(layer.gradient_transposed ? int64_t{layer.in} * layer.out_pad
                                        : int64_t{layer.out} * layer.in_pad);
    layer.bias_gradient = Space(layer.out_pad);
  }
  for (int i = 0; i < plan->stack_count; ++i) {
    StackPlan& stack = plan->stacks[i];
    const LayerPlan& last = stack.layers[stack.layer_count - 1];
    stack.head_weight_gradient = Space(int64_t{stack.rows} * last.out_pad);
    stack.head_bias_gradient = Space(stack.rows);
  }
  plan->gradients_end = workspace_;
}

void Planner::PlanPairs(const std::vector<LayerPlan>& layers, MlpPlan* plan) {
  int widest = 0;
  for (const LayerPlan& layer : layers) {
    widest = std::max({widest, layer.in_pad, layer.out_pad});
  }
  plan->rounded = Space(int64_t{tile_rows_} * PairsOf(widest));
  if (!training_) return;
  const int64_t size = int64_t{PairsOf(tile_rows_)} * widest;
  plan->left_pairs = Space(size);
  plan->right_pairs = Space(size);
  plan->turned_pairs = Space(size);
}

void Planner::Plan(std::vector<LayerPlan>* layers, MlpPlan* plan) {
  *plan = {};
  plan->observations = shape_.observations;
  plan->observations_pad = RoundUp(shape_.observations);
  plan->actions = shape_.actions;
  plan->relu = shape_.activation == Activation::kRelu;
  plan->bfloat16 = shape_.bfloat16;
  plan->tile_rows = tile_rows_;
  plan->continuous = shape_.continuous;
  plan->dueling = shape_.output == MlpOutput::kDuelingQ;
  const bool q = IsQ(shape_);
  plan->stack_count = StackCount();
  layers->resize(plan->stack_count * shape_.hidden.size() + (q ? 1 : 0));

  // The order of ParameterLayout.
  if (shape_.continuous) plan->log_std = Parameter(shape_.actions);
  for (int i = 0; i < plan->stack_count; ++i) {
    StackPlan& stack = plan->stacks[i];
    PlanHidden(layers->data() + i * shape_.hidden.size(), &stack);
    if (q) {
      PlanBranches(&layers->back(), &stack);
    } else {
      PlanHeads(i, &stack);
    }
    PlanHeadSpace(&stack);
  }
  plan->parameter_count = parameters_;
  CHECK_EQ(parameters_, ParameterCount(shape_)) << "plan and layout differ";

  const bool squashed = shape_.output == MlpOutput::kSquashedGaussian;
  const int planes = squashed ? 2 * shape_.actions : shape_.actions + 1;
  const int64_t plane_floats = int64_t{planes} * kTileRows;
  plan->planes = Space(plane_floats);
  plan->plane_scratch = Space(plane_floats);
  plan->action_planes = Space(plane_floats);
  plan->gauss = Space(3 * shape_.actions);
  if (squashed) plan->draws = Space(4 * shape_.actions * kTileRows);
  if (shape_.bfloat16) PlanPairs(*layers, plan);
  if (training_ || shape_.output == MlpOutput::kTwinCritics) {
    plan->inputs = Space(int64_t{tile_rows_} * plan->observations_pad);
  }
  if (training_) {
    int widest = 0;
    for (const LayerPlan& layer : *layers) {
      widest = std::max(widest, layer.out_pad);
    }
    if (shape_.output == MlpOutput::kTwinCritics) {
      plan->input_gradient =
          Space(int64_t{tile_rows_} * plan->observations_pad);
    }
    plan->samples = Space(4 * kTileRows);
    plan->delta[0] = Space(int64_t{tile_rows_} * widest);
    plan->delta[1] = Space(int64_t{tile_rows_} * widest);
    const bool critics = shape_.output == MlpOutput::kTwinCritics;
    plan->zero =
        Space(critics ? std::max(widest, plan->observations_pad) : widest);
    PlanGradients(plan, layers->data(), static_cast<int>(layers->size()));
  }
  plan->workspace_size = workspace_;
}

}  // namespace

Workspace::Workspace(const MlpShape& shape, bool training) {
  CheckShape(shape);
  Planner(shape, training).Plan(&layers_, &plan_);
  first_logit_ = {0};
  for (const int values : shape.choices) {
    first_logit_.push_back(first_logit_.back() + values);
  }
  if (shape.choices.empty()) first_logit_.push_back(shape.actions);
  CHECK_EQ(first_logit_.back(), shape.actions) << "choices have other values";
  plan_.first_logit = first_logit_.data();
  plan_.choices = shape.choice_count();
  data_ = MakeAlignedFloats(plan_.workspace_size);
  std::fill_n(data_.get(), plan_.workspace_size, 0.0f);
}

}  // namespace flotilla
