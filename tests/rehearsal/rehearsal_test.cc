#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/nn/flat_parameters.h"
#include "learner/torch_nn.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/strict.h"

namespace flotilla::rehearsal {
namespace {

namespace F = torch::nn::functional;
using testing::HasSubstr;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

class RehearsalTest : public testing::Test {
 protected:
  RehearsalTest() {
    Register();
    torch::manual_seed(1);
    ResetCounts();
  }
};

torch::TensorOptions Pinned() {
  return torch::TensorOptions().pinned_memory(true);
}

// What `act` throws, or "nothing".
std::string Thrown(const std::function<void()>& act) {
  try {
    act();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing";
}

// ---- Memory

using RehearsalDeathTest = RehearsalTest;

float Read(const float* address) {
  return *static_cast<const volatile float*>(address);
}

constexpr char kTouched[] = "memory of the rehearsal device";

TEST_F(RehearsalDeathTest, HostThatTouchesDeviceMemoryDies) {
  const Tensor t = torch::ones({4}, Device());
  float* const address = t.data_ptr<float>();
  EXPECT_DEATH(Read(address), kTouched);
  EXPECT_DEATH(*static_cast<volatile float*>(address) = 2, kTouched);
  EXPECT_DEATH(
      {
        float copy[4];
        const volatile size_t bytes = sizeof(copy);  // it shall be a call
        std::memcpy(copy, address, bytes);
        Read(copy);
      },
      kTouched);
  const auto rows = t.accessor<float, 1>();
  EXPECT_DEATH(Read(&rows[0]), kTouched);
  const Tensor wrong = torch::from_blob(address, {4});
  EXPECT_DEATH(wrong.add_(1), kTouched);
}

TEST_F(RehearsalDeathTest, OtherThreadDiesWhileKernelsRun) {
  const Tensor t = torch::ones({4}, Device());
  EXPECT_DEATH(
      {
        std::thread reader([&] { Read(t.data_ptr<float>()); });
        for (int i = 0; i < 1000; ++i) t.add_(1);
        reader.join();
      },
      kTouched);
}

TEST_F(RehearsalTest, MemoryIsGivenBack) {
  const int64_t before = LiveBytes();
  {
    const Tensor a = torch::ones({1000}, Device());
    EXPECT_EQ(LiveBytes(), before + 4096);
    const Tensor view = a.narrow(0, 0, 10);
    EXPECT_EQ(LiveBytes(), before + 4096);
    const Tensor sum = (a * 2 + 1).sum();
    EXPECT_EQ(LiveBytes(), before + 4096 + 512);
  }
  EXPECT_EQ(LiveBytes(), before);
}

TEST_F(RehearsalTest, GrowsInPlaceAndSharesStorage) {
  Tensor t = torch::arange(3, Device());
  const Tensor shared = t.narrow(0, 0, 2);
  t.resize_({5});
  t.narrow(0, 3, 2).fill_(7);
  EXPECT_TRUE(
      torch::equal(t.cpu(), torch::tensor({0, 1, 2, 7, 7}, torch::kInt64)));
  t.zero_();
  EXPECT_EQ(shared.sum().item<int64_t>(), 0);
  Tensor out = torch::empty({0}, torch::TensorOptions().device(Device()));
  at::add_out(out, torch::ones({2, 3}, Device()), 1);
  EXPECT_TRUE(torch::equal(out.cpu(), torch::full({2, 3}, 2.0f)));
  Tensor other = torch::empty({0}, torch::TensorOptions().device(Device()));
  other.set_(out);
  out.fill_(3);
  EXPECT_EQ(other.sum().item<float>(), 18);
}

// ---- Counting

TEST_F(RehearsalTest, CopiesAreToldApart) {
  const Tensor pinned = torch::zeros({256}, Pinned());
  const Tensor pageable = torch::zeros({256});
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.narrow(0, 100, 10).is_pinned());
  EXPECT_FALSE(pageable.is_pinned());
  EXPECT_TRUE(pageable.pin_memory().is_pinned());

  const Tensor on_device = pinned.to(Device(), /*non_blocking=*/true);
  EXPECT_EQ(ReadCounts().pinned_to_device.copies, 1);
  EXPECT_EQ(ReadCounts().pinned_to_device.bytes, 1024);
  EXPECT_EQ(ReadCounts().HostWaits(), 0);

  pageable.to(Device(), /*non_blocking=*/true);
  EXPECT_EQ(ReadCounts().pageable_to_device.copies, 1);
  EXPECT_EQ(ReadCounts().pageable_to_device.bytes, 1024);
  EXPECT_EQ(ReadCounts().blocking_copies, 1);

  pinned.to(Device());
  EXPECT_EQ(ReadCounts().pinned_to_device.copies, 2);
  EXPECT_EQ(ReadCounts().blocking_copies, 2);

  EXPECT_TRUE(on_device.to(torch::kCPU, /*non_blocking=*/true).is_pinned());
  EXPECT_EQ(ReadCounts().device_to_pinned.copies, 1);
  EXPECT_EQ(ReadCounts().device_to_pinned.bytes, 1024);
  EXPECT_EQ(ReadCounts().blocking_copies, 2);

  EXPECT_FALSE(on_device.cpu().is_pinned());
  EXPECT_EQ(ReadCounts().device_to_pageable.copies, 1);
  EXPECT_EQ(ReadCounts().device_to_pageable.bytes, 1024);
  EXPECT_EQ(ReadCounts().blocking_copies, 3);

  EXPECT_EQ(ReadCounts().launches, 0);
  on_device.clone();
  EXPECT_EQ(ReadCounts().within_device.copies, 1);
  EXPECT_EQ(ReadCounts().launches, 1);
  EXPECT_EQ(ReadCounts().HostWaits(), 3);
}

// What the learner must not do: rows gathered on the host from pinned memory
// are pageable again.
TEST_F(RehearsalTest, GatheringOnTheHostLosesPinning) {
  const Tensor rows = torch::zeros({8, 4}, Pinned());
  rows.index_select(0, torch::tensor({1, 3})).to(Device(), true);
  EXPECT_EQ(ReadCounts().pageable_to_device.copies, 1);
  EXPECT_EQ(ReadCounts().pinned_to_device.copies, 0);
}

TEST_F(RehearsalTest, LaunchesAndViewsAreCounted) {
  const Tensor t = torch::ones({4, 4}, Device());
  ResetCounts();
  const Tensor row = t.select(0, 1).narrow(0, 0, 2);
  EXPECT_EQ(ReadCounts().views, 2);
  EXPECT_EQ(ReadCounts().launches, 0);
  t.add_(1).mul_(t).add_(2.0);
  EXPECT_EQ(ReadCounts().launches, 3);
  EXPECT_EQ(LaunchesByOperator().at("aten::add"), 2);
  EXPECT_EQ(LaunchesByOperator().at("aten::mul"), 1);
}

TEST_F(RehearsalTest, HostReadIsCountedAndRefused) {
  const Tensor t = torch::ones({4}, Device());
  ResetCounts();
  EXPECT_EQ(t[1].item<float>(), 1);
  EXPECT_EQ(ReadCounts().scalar_reads, 1);
  EXPECT_EQ(ReadCounts().HostWaits(), 1);
  const NoHostWait scope;
  EXPECT_THAT(Thrown([&] { t[1].item<float>(); }), HasSubstr("item()"));
}

TEST_F(RehearsalTest, StraySynchronisationIsCountedAndRefused) {
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  const c10::Stream stream = guard.getStream(Device());
  c10::Event event(c10::kPrivateUse1);
  event.record(stream);
  EXPECT_EQ(ReadCounts().HostWaits(), 0);
  event.synchronize();
  EXPECT_EQ(ReadCounts().event_waits, 1);
  stream.synchronize();
  EXPECT_EQ(ReadCounts().stream_waits, 1);
  guard.synchronizeDevice(0);
  EXPECT_EQ(ReadCounts().device_waits, 1);
  EXPECT_EQ(ReadCounts().HostWaits(), 3);

  const NoHostWait scope;
  EXPECT_THAT(Thrown([&] { event.synchronize(); }), HasSubstr("an event"));
  EXPECT_THAT(Thrown([&] { stream.synchronize(); }), HasSubstr("a stream"));
  EXPECT_THAT(Thrown([&] { guard.synchronizeDevice(0); }),
              HasSubstr("the whole device"));
}

TEST_F(RehearsalTest, WaitsAreRefusedByName) {
  const Tensor t = torch::ones({4}, Device());
  const Tensor same = torch::ones({4}, Device());
  const Tensor mask = t > 0;
  const NoHostWait scope;
  EXPECT_THAT(Thrown([&] { t.cpu(); }), HasSubstr("to pageable memory"));
  EXPECT_THAT(Thrown([&] { torch::zeros({3}).to(Device(), true); }),
              HasSubstr("of pageable memory"));
  EXPECT_THAT(Thrown([&] { torch::zeros({3}, Pinned()).to(Device()); }),
              HasSubstr("a blocking copy to the device"));
  EXPECT_THAT(Thrown([&] {
                torch::tensor({1.0f, 2.0f}, Device());
              }),
              HasSubstr("of pageable memory"));
  EXPECT_THAT(Thrown([&] { t.nonzero(); }), HasSubstr("nonzero"));
  EXPECT_THAT(Thrown([&] { t.masked_select(mask); }),
              HasSubstr("masked_select"));
  EXPECT_THAT(Thrown([&] { t.index({mask}); }), HasSubstr("nonzero"));
  EXPECT_THAT(Thrown([&] { t.clone().index_put_({mask}, t); }),
              HasSubstr("the host waits"));
  EXPECT_THAT(Thrown([&] {
                t.index({torch::tensor({1, 2})});
              }),
              HasSubstr("of pageable memory"));
  EXPECT_THAT(Thrown([&] { torch::equal(t, same); }), HasSubstr("equal"));
  EXPECT_THAT(Thrown([&] { t.sum().is_nonzero(); }), HasSubstr("item()"));
  EXPECT_THAT(Thrown([&] { std::ostringstream() << t; }),
              HasSubstr("to pageable memory"));
}

TEST_F(RehearsalTest, AsynchronousWorkPasses) {
  const Tensor host = torch::ones({4}, Pinned());
  const Tensor t = torch::ones({4}, Device());
  const NoHostWait scope;
  t.copy_(host, /*non_blocking=*/true);
  host.copy_(t * 2 + 1, /*non_blocking=*/true);
  t.mul_(3.0).add_(torch::tensor(2.0));
  t.masked_fill_(t > 4, 0);
  EXPECT_EQ(ReadCounts().HostWaits(), 0);
}

// The engine's threads run it.
TEST_F(RehearsalTest, WaitInABackwardPassIsRefused) {
  const Tensor t = torch::ones(
      {3}, torch::TensorOptions().device(Device()).requires_grad(true));
  const Tensor doubled = t * 2;
  doubled.register_hook(
      [](const Tensor& gradient) { gradient.sum().item<float>(); });
  const NoHostWait scope;
  EXPECT_THAT(Thrown([&] { doubled.sum().backward(); }), HasSubstr("item()"));
}

// ---- Strict mode

class StrictTest : public RehearsalTest {
 protected:
  void Wait() { guard_.getStream(Device()).synchronize(); }

  const Strict strict_;
  const c10::impl::VirtualGuardImpl guard_{c10::kPrivateUse1};
};

TEST_F(StrictTest, MemoryThatNobodyWroteIsNan) {
  const Tensor t = torch::empty({4}, torch::TensorOptions().device(Device()));
  EXPECT_TRUE(t.isnan().all().item<bool>());
}

TEST_F(StrictTest, OverwrittenPinnedSourceIsFound) {
  const Tensor host = torch::ones({1024}, Pinned());
  const Tensor t = host.to(Device(), /*non_blocking=*/true);
  host.fill_(2);
  Wait();
  EXPECT_EQ(ReadCounts().overwritten_sources, 1);
}

TEST_F(StrictTest, PinnedSourceMayChangeAfterTheWait) {
  const Tensor host = torch::ones({1024}, Pinned());
  const Tensor t = host.to(Device(), /*non_blocking=*/true);
  c10::Event copied(c10::kPrivateUse1);
  copied.record(guard_.getStream(Device()));
  copied.synchronize();
  host.fill_(2);
  Wait();
  EXPECT_EQ(ReadCounts().overwritten_sources, 0);
  EXPECT_EQ(t.sum().item<float>(), 1024);
}

TEST_F(StrictTest, ReuseOfAPinnedBufferWithoutAWaitIsFound) {
  const Tensor host = torch::ones({8}, Pinned());
  const Tensor t = torch::empty({8}, torch::TensorOptions().device(Device()));
  t.copy_(host, /*non_blocking=*/true);
  host.fill_(2);
  t.copy_(host, /*non_blocking=*/true);
  EXPECT_EQ(ReadCounts().overwritten_sources, 1);
  Wait();
  EXPECT_EQ(ReadCounts().overwritten_sources, 1);
}

TEST_F(StrictTest, TargetIsNanUntilTheWait) {
  const Tensor t = torch::ones({4}, Device());
  const Tensor host = torch::zeros({4}, Pinned());
  host.copy_(t, /*non_blocking=*/true);
  EXPECT_TRUE(std::isnan(host[0].item<float>()));
  t.fill_(5);  // after the copy, in the stream's order
  Wait();
  EXPECT_EQ(host[0].item<float>(), 1);
}

TEST_F(StrictTest, EventBeforeACopyDoesNotCoverIt) {
  const Tensor t = torch::ones({4}, Device());
  const Tensor host = torch::zeros({4}, Pinned());
  c10::Event early(c10::kPrivateUse1);
  early.record(guard_.getStream(Device()));
  host.copy_(t, /*non_blocking=*/true);
  early.synchronize();
  EXPECT_TRUE(std::isnan(host[0].item<float>()));
  Wait();
  EXPECT_EQ(host[0].item<float>(), 1);
}

TEST_F(StrictTest, WaitCoversStreamsThatBlockTheWaitedOne) {
  const Tensor t = torch::ones({4}, Device());
  const Tensor host = torch::zeros({4}, Pinned());
  const c10::Stream main = guard_.getStream(Device());
  const c10::Stream side = guard_.getNewStream(Device());
  c10::Event copied(c10::kPrivateUse1);
  {
    const c10::StreamGuard on_side(side);
    host.copy_(t, /*non_blocking=*/true);
    copied.record(side);
  }
  main.synchronize();
  EXPECT_TRUE(std::isnan(host[0].item<float>()));
  copied.block(main);
  main.synchronize();
  EXPECT_EQ(host[0].item<float>(), 1);
}

TEST_F(StrictTest, TargetsThatAreNotContiguousArriveToo) {
  const Tensor t = torch::ones({4}, Device());
  const Tensor host = torch::zeros({4, 2}, Pinned());
  host.select(1, 1).copy_(t, /*non_blocking=*/true);
  Wait();
  EXPECT_TRUE(torch::equal(host, torch::tensor({0.f, 1.f}).expand({4, 2})));
}

// ---- Operators

using Function = std::function<Tensors(const Tensors&, torch::Device)>;

struct Results {
  Tensors outputs;
  Tensors gradients;
};

// The function's results on `device`, and the gradients of a weighted sum of
// them.
Results RunOn(torch::Device device, const Tensors& inputs, const Function& f) {
  Tensors here;
  for (const Tensor& input : inputs) {
    here.push_back(input.detach().clone().to(device));
    if (input.is_floating_point()) here.back().requires_grad_();
  }
  torch::manual_seed(3);
  Results results;
  results.outputs = f(here, device);
  Tensor loss = torch::zeros({}, device);
  for (const Tensor& output : results.outputs) {
    EXPECT_EQ(output.device(), device);
    if (!output.requires_grad()) continue;
    loss =
        loss +
        (output *
         torch::linspace(-1, 1, output.numel()).view(output.sizes()).to(device))
            .sum();
  }
  if (loss.requires_grad()) loss.backward();
  for (const Tensor& input : here) {
    if (!input.grad().defined()) continue;
    EXPECT_EQ(input.grad().device(), device);
    results.gradients.push_back(input.grad());
  }
  return results;
}

void ExpectNear(const Tensors& want, const Tensors& got, double tolerance) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const Tensor w = want[i].detach();
    const Tensor g = got[i].detach().cpu();
    ASSERT_EQ(w.dtype(), g.dtype()) << i;
    ASSERT_EQ(w.sizes(), g.sizes()) << i;
    if (tolerance == 0) {
      EXPECT_TRUE(torch::equal(w, g)) << i;
    } else {
      EXPECT_LE((w - g).abs().max().item<double>(), tolerance) << i;
    }
  }
}

// Tolerance 0: bit for bit.
void ExpectSame(const char* name, const Tensors& inputs, const Function& f,
                double tolerance = 0) {
  SCOPED_TRACE(name);
  const Results cpu = RunOn(torch::kCPU, inputs, f);
  const Results device = RunOn(Device(), inputs, f);
  ExpectNear(cpu.outputs, device.outputs, tolerance);
  ExpectNear(cpu.gradients, device.gradients, tolerance);
}

Tensor Normal(const std::vector<int64_t>& sizes) { return torch::randn(sizes); }

Tensor Indices(const std::vector<int64_t>& values, torch::Device device) {
  return torch::tensor(values, torch::kInt64).to(device);
}

TEST_F(RehearsalTest, ArithmeticIsTheCpus) {
  ExpectSame("arithmetic", {Normal({5, 7}), Normal({5, 7})},
             [](const Tensors& x, torch::Device) {
               return Tensors{(x[0] + x[1]) * x[0] - x[1] / 3 + 2};
             });
  ExpectSame("broadcast, where, clamp", {Normal({5, 1}), Normal({7})},
             [](const Tensors& x, torch::Device) {
               return Tensors{
                   torch::where(x[0] > 0, x[0] * x[1], x[1].clamp(-0.5, 0.5))};
             });
  ExpectSame("matrices", {Normal({3, 4, 5}), Normal({3, 5, 2}), Normal({5, 4})},
             [](const Tensors& x, torch::Device) {
               return Tensors{
                   x[0].bmm(x[1]), torch::matmul(x[0], x[2]),
                   torch::einsum("bij,bjk->ik", {x[0], x[1]}),
                   torch::addmm(x[2], x[2], x[0][0].narrow(1, 0, 4))};
             });
  ExpectSame("several tensors", {Normal({9}), Normal({6})},
             [](const Tensors& x, torch::Device) {
               Tensors both = {x[0].detach().clone(), x[1].detach().clone()};
               at::_foreach_mul_(both, 3.0);
               at::_foreach_add_(both, 1.0);
               const Tensors norms = at::_foreach_norm(both);
               return Tensors{both[0], both[1], norms[0], norms[1]};
             });
  ExpectSame("bfloat16", {Normal({9, 6}), Normal({5, 6})},
             [](const Tensors& x, torch::Device) {
               return Tensors{F::linear(x[0].to(torch::kBFloat16),
                                        x[1].to(torch::kBFloat16))
                                  .to(torch::kFloat32)};
             });
}

TEST_F(RehearsalTest, ViewsAreTheCpus) {
  ExpectSame("views", {Normal({4, 6, 5})}, [](const Tensors& x, torch::Device) {
    const Tensor t = x[0].transpose(0, 1).narrow(0, 1, 3).select(2, 2);
    return Tensors{t.t().unsqueeze(1).expand({4, 2, 3}),
                   x[0].view({24, 5}).chunk(3, 0)[1],
                   x[0].unbind(0)[2],
                   x[0].flatten().unfold(0, 4, 2),
                   x[0].diagonal(0, 1, 2),
                   x[0].permute({2, 0, 1}).contiguous(),
                   x[0].reshape({-1}),
                   x[0].split(2, 1)[1]};
  });
  ExpectSame("joined", {Normal({3, 6}), Normal({2, 6})},
             [](const Tensors& x, torch::Device) {
               return Tensors{torch::cat({x[0], x[1]}),
                              torch::stack({x[0], x[0]}),
                              F::pad(x[0], F::PadFuncOptions({1, 2}))};
             });
  ExpectSame("in place and out=", {Normal({9, 6})},
             [](const Tensors& x, torch::Device device) {
               Tensor y = x[0].detach().clone();
               y.mul_(2).add_(1).clamp_(-1, 1).sigmoid_();
               Tensor out = torch::empty({0}, device);
               at::mul_out(out, y, y);
               y.narrow(1, 1, 2).zero_();
               y.select(0, 3).copy_(out.select(0, 2));
               y.fill_diagonal_(4);
               return Tensors{y, out, torch::addcmul(out, y, y)};
             });
}

TEST_F(RehearsalTest, LayersAreTheCpus) {
  const auto convolution = [](const Tensors& x, torch::Device) {
    return Tensors{F::conv2d(
        x[0], x[1], F::Conv2dFuncOptions().bias(x[2]).stride(2).padding(1))};
  };
  const Tensors images = {Normal({3, 4, 20, 20}), Normal({8, 4, 5, 5}),
                          Normal({8})};
  ExpectSame("convolution", images, convolution);
  ExpectSame("convolution, channels last",
             {images[0].contiguous(torch::MemoryFormat::ChannelsLast),
              images[1], images[2]},
             convolution);
  ExpectSame("convolution of rows",
             {Normal({3, 4, 20}), Normal({8, 4, 5}), Normal({8})},
             [](const Tensors& x, torch::Device) {
               return Tensors{
                   F::conv1d(x[0], x[1], F::Conv1dFuncOptions().bias(x[2]))};
             });
  ExpectSame("linear", {Normal({9, 6}), Normal({5, 6}), Normal({5})},
             [](const Tensors& x, torch::Device) {
               return Tensors{F::linear(x[0], x[1], x[2])};
             });
  ExpectSame(
      "activations", {Normal({9, 6}), Normal({1})},
      [](const Tensors& x, torch::Device) {
        return Tensors{x[0].tanh(),
                       x[0].relu(),
                       torch::gelu(x[0]),
                       torch::silu(x[0]),
                       torch::elu(x[0]),
                       torch::softplus(x[0]),
                       torch::prelu(x[0], x[1]),
                       torch::dropout(x[0], 0.5, /*train=*/false)};
      },
      1e-6);
  ExpectSame("layer norm", {Normal({9, 6}), Normal({6}), Normal({6})},
             [](const Tensors& x, torch::Device) {
               return Tensors{torch::layer_norm(x[0], {6}, x[1], x[2])};
             });
  ExpectSame("batch norm", {Normal({9, 6, 3, 3}), Normal({6}), Normal({6})},
             [](const Tensors& x, torch::Device device) {
               const Tensor mean = torch::zeros({6}, device);
               const Tensor variance = torch::ones({6}, device);
               return Tensors{
                   torch::batch_norm(x[0], x[1], x[2], mean, variance,
                                     /*training=*/true, 0.1, 1e-5, false),
                   mean, variance};
             });
  ExpectSame("pooling", {Normal({2, 3, 8, 8})},
             [](const Tensors& x, torch::Device) {
               return Tensors{torch::max_pool2d(x[0], {2, 2}),
                              torch::avg_pool2d(x[0], {2, 2}),
                              torch::adaptive_avg_pool2d(x[0], {3, 3})};
             });
  ExpectSame(
      "embedding", {Normal({9, 6})},
      [](const Tensors& x, torch::Device device) {
        return Tensors{torch::embedding(x[0], Indices({1, 2, 1}, device))};
      });
  ExpectSame(
      "attention",
      {Normal({2, 3, 5, 8}), Normal({2, 3, 5, 8}), Normal({2, 3, 5, 8})},
      [](const Tensors& x, torch::Device) {
        return Tensors{torch::scaled_dot_product_attention(x[0], x[1], x[2])};
      },
      1e-5);
}

TEST_F(RehearsalTest, RecurrentLayersAreTheCpusWithinRounding) {
  ExpectSame(
      "lstm cell",
      {Normal({5, 6}), Normal({5, 4}), Normal({5, 4}), Normal({16, 6}),
       Normal({16, 4}), Normal({16}), Normal({16})},
      [](const Tensors& x, torch::Device) {
        const auto [h, c] =
            torch::lstm_cell(x[0], {x[1], x[2]}, x[3], x[4], x[5], x[6]);
        return Tensors{h, c};
      },
      1e-5);
  const Tensors weights = {Normal({16, 6}), Normal({16, 4}), Normal({16}),
                           Normal({16})};
  ExpectSame(
      "lstm of 5 steps",
      {Normal({5, 3, 6}), Normal({1, 3, 4}), Normal({1, 3, 4}), weights[0],
       weights[1], weights[2], weights[3]},
      [](const Tensors& x, torch::Device) {
        const auto [y, h, c] =
            torch::lstm(x[0], {x[1], x[2]}, {x[3], x[4], x[5], x[6]},
                        /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0,
                        /*train=*/true, /*bidirectional=*/false,
                        /*batch_first=*/false);
        return Tensors{y, h, c};
      },
      1e-5);
  ExpectSame(
      "gru cell",
      {Normal({5, 6}), Normal({5, 4}), Normal({12, 6}), Normal({12, 4}),
       Normal({12}), Normal({12})},
      [](const Tensors& x, torch::Device) {
        return Tensors{torch::gru_cell(x[0], x[1], x[2], x[3], x[4], x[5])};
      },
      1e-5);
  ExpectSame(
      "gru cell without bias",
      {Normal({5, 6}), Normal({5, 4}), Normal({12, 6}), Normal({12, 4})},
      [](const Tensors& x, torch::Device) {
        return Tensors{torch::gru_cell(x[0], x[1], x[2], x[3])};
      },
      1e-5);
}

TEST_F(RehearsalTest, LossesAndReductionsAreTheCpus) {
  ExpectSame(
      "classes", {Normal({9, 6})}, [](const Tensors& x, torch::Device device) {
        const Tensor target = Indices({0, 1, 2, 3, 4, 5, 0, 1, 2}, device);
        const Tensor y = x[0].log_softmax(1);
        return Tensors{y, torch::nll_loss(y, target),
                       y.gather(1, target.unsqueeze(1)),
                       F::cross_entropy(x[0], target)};
      });
  ExpectSame("differences", {Normal({9}), Normal({9})},
             [](const Tensors& x, torch::Device) {
               return Tensors{torch::smooth_l1_loss(x[0], x[1]),
                              torch::huber_loss(x[0], x[1]),
                              torch::mse_loss(x[0], x[1])};
             });
  ExpectSame("reductions", {Normal({9, 6})},
             [](const Tensors& x, torch::Device) {
               const auto [most, where] = x[0].max(1);
               const auto [sorted, order] = x[0].sort(0);
               return Tensors{
                   most,           where,          sorted,
                   order,          x[0].mean(),    x[0].std(),
                   x[0].norm(),    x[0].sum(0),    x[0].logsumexp(1),
                   x[0].cumsum(0), x[0].argmax(1), std::get<0>(x[0].topk(2, 1)),
                   x[0].amax(0),   x[0].var(1)};
             });
}

TEST_F(RehearsalTest, IndexingIsTheCpus) {
  ExpectSame(
      "gathered", {Normal({9, 6})}, [](const Tensors& x, torch::Device device) {
        const Tensor i = Indices({3, 1, 3, 8}, device);
        return Tensors{
            x[0].index_select(0, i), x[0].index({i}),
            x[0].index({i, i.remainder(6)}),
            x[0].take_along_dim(
                i.view({4, 1}).narrow(0, 0, 1).expand({9, 1}).remainder(6), 1)};
      });
  ExpectSame("scattered", {Normal({9, 6}), Normal({2, 6})},
             [](const Tensors& x, torch::Device device) {
               const Tensor i = Indices({3, 1}, device);
               const Tensor copied = x[0] * 1;
               copied.index_copy_(0, i, x[1]);
               Tensor put = x[0] * 1;
               put.index_put_({i}, x[1], /*accumulate=*/true);
               return Tensors{
                   copied, put, torch::zeros_like(x[0]).index_add(0, i, x[1]),
                   x[0].scatter(0, i.view({2, 1}).expand({2, 6}), x[1])};
             });
  ExpectSame("masked", {Normal({9, 6})}, [](const Tensors& x, torch::Device) {
    return Tensors{x[0].masked_fill(x[0] > 0, 0.5),
                   x[0].masked_select(x[0] > 0), (x[0] > 0).nonzero(),
                   x[0].index({x[0].sum(1) > 0})};
  });
  EXPECT_GE(ReadCounts().dynamic_shapes, 3);
}

TEST_F(RehearsalTest, FactoriesAreTheCpus) {
  ExpectSame("factories", {}, [](const Tensors&, torch::Device device) {
    return Tensors{torch::arange(5, device),
                   torch::full({2, 2}, 3.0, device),
                   torch::eye(3, device),
                   torch::linspace(0, 1, 5, device),
                   torch::tensor({1.0, 2.0}, device),
                   torch::zeros({2}, device),
                   torch::ones_like(torch::empty({3}, device)),
                   torch::one_hot(Indices({1, 2}, device), 4),
                   torch::tril(torch::ones({3, 3}, device)),
                   torch::zeros({0, 3}, device)};
  });
}

TEST_F(RehearsalTest, GeneratorDrawsWhatTheCpusDoes) {
  at::Generator ours = at::globalContext().defaultGenerator(Device()).clone();
  ours.set_current_seed(7);
  at::Generator cpu = at::detail::createCPUGenerator(7);
  const Tensor weights = torch::rand({50, 6}) + 0.1;
  const auto same = [](const Tensor& a, const Tensor& b) {
    return torch::equal(a.cpu(), b);
  };
  EXPECT_TRUE(same(torch::multinomial(weights.to(Device()), 1, true, ours),
                   torch::multinomial(weights, 1, true, cpu)));
  EXPECT_TRUE(
      same(torch::randn({10}, ours, Device()), torch::randn({10}, cpu)));
  EXPECT_TRUE(same(torch::zeros({7}, Device()).exponential_(1, ours),
                   torch::zeros({7}).exponential_(1, cpu)));

  at::Generator twin = ours.clone();
  EXPECT_TRUE(same(torch::rand({4}, ours, Device()),
                   torch::rand({4}, twin, Device()).cpu()));
  const Tensor state = ours.get_state();
  const Tensor first = torch::rand({4}, ours, Device());
  ours.set_state(state);
  EXPECT_TRUE(same(torch::rand({4}, ours, Device()), first.cpu()));

  torch::manual_seed(5);
  const Tensor seeded = torch::rand({4}, Device());
  torch::manual_seed(5);
  EXPECT_TRUE(same(torch::rand({4}, Device()), seeded.cpu()));
}

TEST_F(RehearsalTest, MixedDevicesAreRefused) {
  const Tensor host = torch::ones({2});
  const Tensor t = torch::ones({2}, Device());
  const Tensor square = torch::ones({2, 2}, Device());
  EXPECT_NE(Thrown([&] { t + host; }), "nothing");
  EXPECT_NE(Thrown([&] { host + t; }), "nothing");
  EXPECT_NE(Thrown([&] { t.add_(host); }), "nothing");
  EXPECT_NE(Thrown([&] { torch::addmm(host, square, square); }), "nothing");
  EXPECT_NE(Thrown([&] { torch::cat({t, host}); }), "nothing");
  const Tensor index = Indices({1}, Device());
  EXPECT_NE(Thrown([&] { host.index_select(0, index); }), "nothing");
  EXPECT_NE(Thrown([&] { host.index({index}); }), "nothing");
  EXPECT_NE(Thrown([&] { t.index_select(0, index.cpu()); }), "nothing");
  Tensor out = torch::empty({2});
  EXPECT_NE(Thrown([&] { at::add_out(out, t, t); }), "nothing");
  at::Generator cpu = at::detail::createCPUGenerator(7);
  EXPECT_NE(Thrown([&] { torch::rand({2}, cpu, Device()); }), "nothing");
  EXPECT_EQ((t + torch::tensor(2.0f)).sum().item<float>(), 6);
}

TEST_F(RehearsalTest, ThreadsShareTheDevice) {
  const auto work = [](float number) {
    const Tensor weights = torch::full({64, 64}, number, Device());
    for (int i = 0; i < 100; ++i) {
      const Tensor sum = torch::ones({8, 64}, Device()).mm(weights).sum();
      EXPECT_EQ(sum.item<float>(), 8 * 64 * 64 * number);
    }
  };
  std::thread one(work, 0.5f);
  std::thread two(work, 2.0f);
  one.join();
  two.join();
  EXPECT_EQ(ReadCounts().scalar_reads, 200);
}

// ---- Training

constexpr int64_t kRows = 256;
constexpr int64_t kMinibatch = 64;
constexpr int64_t kFeatures = 4;
constexpr int64_t kHidden = 64;
constexpr int64_t kActions = 3;

// A rollout on the host: observations, actions, old log-probabilities,
// advantages, returns.
Tensors RandomRollout() {
  Tensors rollout = {torch::randn({kRows, kFeatures}),
                     torch::randint(0, kActions, {kRows}, torch::kInt64),
                     torch::full({kRows}, -1.1f), torch::randn({kRows}),
                     torch::randn({kRows})};
  for (Tensor& column : rollout) column = column.pin_memory();
  return rollout;
}

// PPO's step with Adam, as the learner's networks keep their parameters.
class Trainee {
 public:
  explicit Trainee(torch::Device device)
      : device_(device),
        flat_(kHidden * (kFeatures + 1) + (kActions + 1) * (kHidden + 1),
              device),
        moment1_(torch::zeros_like(flat_.parameters)),
        moment2_(torch::zeros_like(flat_.parameters)) {
    weight1_ = flat_.Take("body.weight", {kHidden, kFeatures});
    bias1_ = flat_.Take("body.bias", {kHidden});
    weight2_ = flat_.Take("heads.weight", {kActions + 1, kHidden});
    bias2_ = flat_.Take("heads.bias", {kActions + 1});
    torch::NoGradGuard no_grad;
    torch::manual_seed(2);
    flat_.parameters.copy_(torch::randn({flat_.size()}) * 0.1);
  }

  const Tensor& parameters() const { return flat_.parameters; }

  void Upload(const Tensors& rollout) {
    rollout_.clear();
    for (const Tensor& column : rollout) {
      rollout_.push_back(column.to(device_, /*non_blocking=*/true));
    }
  }

  void Step(const Tensor& rows) {
    const Tensor index = rows.to(device_, /*non_blocking=*/true);
    Tensors batch;
    for (const Tensor& column : rollout_) {
      batch.push_back(column.index_select(0, index));
    }
    const Tensor loss = Loss(batch);
    if (plant) plant(loss);
    loss.backward();
    torch::NoGradGuard no_grad;
    Tensor gradient = flat_.gradients;
    gradient.mul_((0.5 / (gradient.norm() + 1e-6)).clamp_max(1.0));
    ++step_;
    moment1_.lerp_(gradient, 0.1);
    moment2_.mul_(0.999).addcmul_(gradient, gradient, 0.001);
    const double correction1 = 1 - std::pow(0.9, step_);
    const double correction2 = 1 - std::pow(0.999, step_);
    flat_.parameters.addcdiv_(
        moment1_, moment2_.sqrt().div_(std::sqrt(correction2)).add_(1e-5),
        -2.5e-3 / correction1);
    gradient.zero_();
  }

  // A fault of the step, which a test put there.
  std::function<void(const Tensor& loss)> plant;

 private:
  Tensor Loss(const Tensors& batch) const {
    const Tensor hidden = F::linear(batch[0], weight1_, bias1_).tanh();
    const Tensor out = F::linear(hidden, weight2_, bias2_);
    const Tensor log_prob = out.narrow(1, 0, kActions).log_softmax(1);
    const Tensor taken = log_prob.gather(1, batch[1].unsqueeze(1)).squeeze(1);
    const Tensor ratio = (taken - batch[2]).exp();
    const Tensor advantage =
        (batch[3] - batch[3].mean()) / (batch[3].std() + 1e-8);
    const Tensor policy =
        torch::max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
            .mean();
    const Tensor value =
        0.5 * (out.select(1, kActions) - batch[4]).square().mean();
    const Tensor entropy = -(log_prob.exp() * log_prob).sum(1).mean();
    return policy + 0.5 * value - 0.01 * entropy;
  }

  const torch::Device device_;
  FlatParameters flat_;
  Tensor moment1_;
  Tensor moment2_;
  Tensor weight1_, bias1_, weight2_, bias2_;
  Tensors rollout_;
  int64_t step_ = 0;
};

TEST_F(RehearsalTest, TrainsBitForBitAsTheCpu) {
  const Strict strict;
  const Tensors rollout = RandomRollout();
  Trainee cpu(torch::kCPU);
  Trainee device(Device());
  const Tensor start = cpu.parameters().clone();
  ASSERT_TRUE(torch::equal(device.parameters().cpu(), start));
  ResetCounts();
  cpu.Upload(rollout);
  {
    const NoHostWait scope;
    device.Upload(rollout);
  }
  EXPECT_EQ(ReadCounts().pinned_to_device.copies, 5);
  for (int step = 0; step < 8; ++step) {
    const Tensor rows =
        torch::randperm(kRows).narrow(0, 0, kMinibatch).clone().pin_memory();
    cpu.Step(rows);
    {
      const NoHostWait scope;
      device.Step(rows);
    }
    ASSERT_TRUE(torch::equal(device.parameters().cpu(), cpu.parameters()))
        << "step " << step;
  }
  EXPECT_FALSE(torch::equal(cpu.parameters(), start));
  EXPECT_EQ(ReadCounts().pageable_to_device.copies, 0);
  EXPECT_EQ(ReadCounts().overwritten_sources, 0);
}

// A step that never waits, and what it says of each fault planted into it.
class PlantedFaultTest : public RehearsalTest {
 protected:
  PlantedFaultTest() {
    trainee_.Upload(rollout_);
    ResetCounts();
  }

  std::string ThrownByStep() {
    const NoHostWait scope;
    return Thrown([this] { trainee_.Step(rows_); });
  }

  const Tensors rollout_ = RandomRollout();
  Tensor rows_ =
      torch::randperm(kRows).narrow(0, 0, kMinibatch).clone().pin_memory();
  Trainee trainee_{Device()};
};
using PlantedFaultDeathTest = PlantedFaultTest;

TEST_F(PlantedFaultTest, NoneIsFoundWhereNoneIs) {
  EXPECT_EQ(ThrownByStep(), "nothing");
}

TEST_F(PlantedFaultTest, HostReadIsNamed) {
  trainee_.plant = [](const Tensor& loss) { loss.item<float>(); };
  EXPECT_THAT(ThrownByStep(), HasSubstr("item()"));
  trainee_.plant = [](const Tensor& loss) { loss.detach().cpu(); };
  EXPECT_THAT(ThrownByStep(), HasSubstr("to pageable memory of the host"));
}

TEST_F(PlantedFaultDeathTest, HostReadThroughAPointerIsNamed) {
  trainee_.plant = [](const Tensor& loss) { Read(loss.data_ptr<float>()); };
  EXPECT_DEATH(ThrownByStep(), "the host read or wrote");
}

TEST_F(PlantedFaultTest, PageableCopyIsNamed) {
  rows_ = rows_.clone();
  ASSERT_FALSE(rows_.is_pinned());
  EXPECT_THAT(ThrownByStep(), HasSubstr("a copy of pageable memory"));
  EXPECT_EQ(ReadCounts().pageable_to_device.copies, 1);
}

TEST_F(PlantedFaultTest, StraySynchronisationIsNamed) {
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  trainee_.plant = [&](const Tensor&) {
    guard.getStream(Device()).synchronize();
  };
  EXPECT_THAT(ThrownByStep(), HasSubstr("a stream"));
  trainee_.plant = [&](const Tensor&) { guard.synchronizeDevice(0); };
  EXPECT_THAT(ThrownByStep(), HasSubstr("the whole device"));
  trainee_.plant = [&](const Tensor&) {
    c10::Event event(c10::kPrivateUse1);
    event.record(guard.getStream(Device()));
    event.synchronize();
  };
  EXPECT_THAT(ThrownByStep(), HasSubstr("an event"));
}

}  // namespace
}  // namespace flotilla::rehearsal
