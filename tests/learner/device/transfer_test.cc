#include "learner/device/transfer.h"

#include "gtest/gtest.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/no_host_wait.h"
#include "tests/rehearsal/strict.h"

namespace flotilla {
namespace {

using rehearsal::Device;
using rehearsal::ReadCounts;

// Its copies are late, and its memory is NaN until somebody writes it.
class TransferTest : public testing::Test {
 protected:
  TransferTest() {
    rehearsal::Register();
    rehearsal::ResetCounts();
  }

  const rehearsal::Strict strict_;
};

torch::Tensor Numbers() {
  return torch::arange(24, torch::kFloat32).view({6, 4});
}

TEST_F(TransferTest, OnACpuNothingMoves) {
  const torch::Tensor t = Numbers();
  EXPECT_FALSE(Staging({3}, torch::kInt64, torch::kCPU).is_pinned());
  EXPECT_TRUE(ToDevice(t, torch::kCPU).is_same(t));
  EXPECT_TRUE(ToDevice(t.t(), torch::kCPU).is_alias_of(t));
  EXPECT_TRUE(ToHost(t).is_same(t));
  torch::Tensor gaps = t.t(), none;
  ToHost({&gaps, &none});
  EXPECT_TRUE(gaps.is_contiguous());
  EXPECT_TRUE(torch::equal(gaps, t.t()));
  EXPECT_FALSE(none.defined());
  const torch::Tensor index = torch::tensor({5, 1}, torch::kInt32);
  EXPECT_TRUE(torch::equal(RowsToDevice(t, index, torch::kCPU),
                           t.index_select(0, index)));
}

TEST_F(TransferTest, WhatIsStagedGoesWithoutAWait) {
  const torch::Tensor rows = Staging({2, 3}, torch::kFloat32, Device());
  EXPECT_TRUE(rows.is_pinned());
  rows.fill_(7);
  torch::Tensor there;
  {
    const rehearsal::NoHostWait scope;
    there = ToDevice(rows, Device());
  }
  EXPECT_EQ(there.device(), Device());
  EXPECT_EQ(ReadCounts().pinned_to_device.copies, 1);
  EXPECT_EQ(ReadCounts().pinned_to_device.bytes, 24);
  EXPECT_TRUE(torch::equal(ToHost(there), torch::full({2, 3}, 7.0f)));
}

// Of any memory but pinned: it is copied before this returns.
TEST_F(TransferTest, WhatIsNotPinnedMayChangeAtOnce) {
  const torch::Tensor whole = Numbers(), pinned = Numbers().pin_memory();
  torch::Tensor a, b, c;
  {
    const rehearsal::NoHostWait scope;
    a = ToDevice(whole, Device());
    b = ToDevice(whole.t(), Device());
    c = ToDevice(pinned.t(), Device());  // gaps: not from where it lies
  }
  whole.zero_();
  pinned.zero_();
  EXPECT_TRUE(torch::equal(ToHost(a), Numbers()));
  EXPECT_TRUE(torch::equal(ToHost(b), Numbers().t()));
  EXPECT_TRUE(torch::equal(ToHost(c), Numbers().t()));
  EXPECT_EQ(ReadCounts().pinned_to_device.copies, 3);
  EXPECT_EQ(ReadCounts().pageable_to_device.copies, 0);
  EXPECT_EQ(ReadCounts().overwritten_sources, 0);
}

TEST_F(TransferTest, PinnedMemoryGoesFromWhereItLies) {
  const torch::Tensor pinned = Numbers().pin_memory();
  const torch::Tensor there = ToDevice(pinned, Device());
  pinned.zero_();
  ToHost(there);
  EXPECT_EQ(ReadCounts().overwritten_sources, 1);
}

TEST_F(TransferTest, WhatIsThereStays) {
  const torch::Tensor there = torch::ones({2}, Device());
  EXPECT_TRUE(ToDevice(there, Device()).is_same(there));
}

TEST_F(TransferTest, RowsAreGatheredIntoPinnedMemory) {
  const torch::Tensor host = Numbers();
  for (const auto type : {torch::kInt32, torch::kInt64}) {
    const torch::Tensor index = torch::tensor({5, 0, 5}, type);
    rehearsal::ResetCounts();
    torch::Tensor rows, none;
    {
      const rehearsal::NoHostWait scope;
      rows = RowsToDevice(host, index, Device());
      none = RowsToDevice(host, index.narrow(0, 0, 0), Device());
    }
    EXPECT_EQ(ReadCounts().pinned_to_device.copies, 1);
    EXPECT_TRUE(torch::equal(ToHost(rows), host.index_select(0, index)));
    EXPECT_EQ(none.sizes(), (std::vector<int64_t>{0, 4}));
  }
}

TEST_F(TransferTest, WhatComesTogetherIsWaitedForOnce) {
  torch::Tensor a = torch::ones({3}, Device()), none;
  torch::Tensor b = torch::ones({2, 3}, Device()).mul_(2).t();
  rehearsal::ResetCounts();
  ToHost({&a, &none, &b});
  EXPECT_TRUE(torch::equal(a, torch::ones({3})));
  EXPECT_TRUE(torch::equal(b, torch::full({3, 2}, 2.0f)));
  EXPECT_TRUE(b.is_contiguous());
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(ReadCounts().device_to_pinned.copies, 2);
  EXPECT_EQ(ReadCounts().event_waits, 1);
  EXPECT_EQ(ReadCounts().HostWaits(), 1);
}

}  // namespace
}  // namespace flotilla
