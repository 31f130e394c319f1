#include "learner/rollout/observation_store.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

using testing::ElementsAre;

using Values = std::vector<double>;
using Row = std::vector<Values>;  // of each leaf

// An environment, how its observation is stored, and the same by hand.
struct World {
  v1::EnvSpec spec;
  Spaces spaces;
  Row (*encode)(const Row& seen);
};

World MakeWorld(const std::string& spec, const std::string& model,
                Row (*encode)(const Row&)) {
  World world;
  v1::ModelConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(spec, &world.spec));
  CHECK(google::protobuf::TextFormat::ParseFromString(model, &config));
  world.spaces = DescribeSpaces(world.spec, config).value();
  world.encode = encode;
  return world;
}

World OneLeaf(const std::string& fields) {
  return MakeWorld(
      "observation { " + fields + " } action { dtype: INT64 num_values: 2 }",
      "", [](const Row& seen) { return seen; });
}

World Frames(int stack) {
  return OneLeaf(
      absl::StrCat("dtype: UINT8 shape: [3, 2] frame_stack: ", stack));
}

// Every kind of leaf, with stacks that differ.
World Mixed() {
  return MakeWorld(
      "observation { path: 'a' dtype: INT64 num_values: 3 }"
      "observation { path: 'b' dtype: FLOAT32 shape: 2 frame_stack: 3 }"
      "observation { path: 'c' dtype: UINT8 shape: [3, 5] frame_stack: 4 }"
      "observation { path: 'd' dtype: FLOAT32 shape: 3 }"
      "observation { path: 'e' dtype: INT64 shape: 2 num_values_each: [4, 5] }"
      "observation { path: 'f' dtype: UINT8 shape: 2 }"
      "observation { path: 'g' dtype: UINT8 shape: 2 num_values_each: [4, 2] "
      "              frame_stack: 5 }"
      "observation { path: 'h' dtype: INT64 }"
      "observation { path: 'm' dtype: UINT8 shape: 5 num_values: 2 }"
      "action { path: 'a' dtype: INT64 num_values: 3 }"
      "action { path: 'b' dtype: INT64 shape: 2 num_values_each: [3, 2] "
      "         mask_path: 'm' }"
      "action { path: 'c' dtype: INT64 num_values: 2 }",
      "leaf { path: 'e' encoder: EMBEDDING frame_stack: 2 }",
      [](const Row& seen) -> Row {
        const auto one_hot = [](double value, int n) {
          Values bits(n, 0.0);
          bits[static_cast<int>(value)] = 1;
          return bits;
        };
        const auto join = [](std::initializer_list<Values> all) {
          Values joined;
          for (const Values& v : all) {
            joined.insert(joined.end(), v.begin(), v.end());
          }
          return joined;
        };
        const Values &a = seen[0], &d = seen[3], &f = seen[5], &g = seen[6],
                     &h = seen[7], &m = seen[8];
        return {join({d, f, h, one_hot(a[0], 3)}),
                seen[1],
                seen[2],
                seen[4],
                join({one_hot(g[0], 4), one_hot(g[1], 2)}),
                join({{1, 1, 1}, m, {1, 1}})};
      });
}

std::vector<World> Worlds() {
  return {Frames(1),
          Frames(2),
          Frames(4),
          Mixed(),
          OneLeaf("dtype: FLOAT32"),
          OneLeaf("dtype: FLOAT32 shape: 3 frame_stack: 3"),
          OneLeaf("dtype: FLOAT32 shape: [36, 37, 2] frame_stack: 2")};
}

// Random rows of an environment's observation, as they come and as numbers.
struct Wire {
  std::vector<std::string> leaf;
  std::vector<Row> row;

  absl::string_view operator()(int i) const { return leaf[i]; }
};

int64_t Elements(const v1::Leaf& leaf) {
  int64_t n = 1;
  for (const int64_t d : leaf.shape()) n *= d;
  return n;
}

template <typename T>
void Append(T value, std::string* bytes, Values* numbers) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
  numbers->push_back(static_cast<double>(value));
}

Wire Draw(const v1::EnvSpec& spec, int64_t rows, Random* rng) {
  Wire wire;
  wire.leaf.resize(spec.observation_size());
  wire.row.assign(rows, Row(spec.observation_size()));
  for (Row& row : wire.row) {
    for (int i = 0; i < spec.observation_size(); ++i) {
      const v1::Leaf& leaf = spec.observation(i);
      for (int64_t e = 0; e < Elements(leaf); ++e) {
        int64_t limit = leaf.num_values_each_size() > 0
                            ? leaf.num_values_each(static_cast<int>(e))
                            : leaf.num_values();
        if (limit == 0) limit = 256;
        const uint64_t value = rng->Below(limit);
        if (leaf.dtype() == v1::FLOAT32) {
          Append(static_cast<float>(rng->Normal()), &wire.leaf[i], &row[i]);
        } else if (leaf.dtype() == v1::UINT8) {
          Append(static_cast<uint8_t>(value), &wire.leaf[i], &row[i]);
        } else {
          Append(static_cast<int64_t>(value), &wire.leaf[i], &row[i]);
        }
      }
    }
  }
  return wire;
}

// What a frame-stack wrapper shows: a deque for each leaf, filled by a reset.
class SlowStacks {
 public:
  explicit SlowStacks(const Spaces& spaces) {
    for (const LeafSpec& leaf : spaces.observation)
      stack_.push_back(leaf.stack);
    shown_.resize(stack_.size());
  }
  void Reset(const Row& row) {
    for (size_t i = 0; i < stack_.size(); ++i) {
      shown_[i].assign(stack_[i], row[i]);
    }
  }
  void Push(const Row& row) {
    for (size_t i = 0; i < stack_.size(); ++i) {
      shown_[i].push_back(row[i]);
      shown_[i].pop_front();
    }
  }
  // Of each leaf, oldest first.
  Row Shown() const {
    Row row;
    for (const auto& arrays : shown_) {
      row.emplace_back();
      for (const Values& one : arrays) {
        row.back().insert(row.back().end(), one.begin(), one.end());
      }
    }
    return row;
  }

 private:
  std::vector<int64_t> stack_;
  std::vector<std::deque<Values>> shown_;
};

struct Final {
  int64_t t, b;
  std::vector<uint8_t> row;
  Row want;
};

// A rollout of N steps, and what a slow wrapper shows.
struct Played {
  ObservationStore store;
  std::vector<Row> want;  // [N * B]
  std::vector<Final> finals;
};

// Plays rollouts one after the other, each beginning with the last one's last
// step, in slots of unlike sizes.
class Player {
 public:
  Player(const World& world, int64_t rows, uint64_t seed)
      : world_(world),
        rows_(rows),
        rng_(seed),
        carried_(world.spaces, 1, rows),
        slow_(rows, SlowStacks(world.spaces)) {}

  Played Play(int64_t steps) {
    Played p{ObservationStore(world_.spaces, steps, rows_), {}, {}};
    p.want.resize(steps * rows_);
    const int64_t cut = rows_ / 3;
    for (int64_t t = 0; t < steps; ++t) {
      if (t == 0 && started_) {
        p.store.CopyStep(0, carried_, 0);
      } else {
        Step(t, 0, cut, &p);
        Step(t, cut, rows_ - cut, &p);
        started_ = true;
      }
      for (int64_t b = 0; b < rows_; ++b) {
        p.want[t * rows_ + b] = slow_[b].Shown();
      }
    }
    carried_.CopyStep(0, p.store, steps - 1);
    return p;
  }

 private:
  void Step(int64_t t, int64_t first, int64_t rows, Played* p) {
    const Wire wire = Draw(world_.spec, rows, &rng_);
    p->store.Write(t, first, rows, [&](int i) { return wire(i); });
    std::vector<uint8_t> ended(rows);
    for (uint8_t& e : ended) e = rng_.Below(4) == 0;
    const bool lost = !started_ || rng_.Below(8) == 0;
    if (lost) {
      p->store.Restart(t, first, rows);
      ended.assign(rows, 1);
    } else {
      p->store.Continue(t, first, rows, ended.data());
      const Wire finals = Draw(world_.spec, rows, &rng_);
      for (int64_t r = 0; r < rows; ++r) {
        if (ended[r] && t > 0) AddFinal(t, first + r, finals, r, p);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const Row row = world_.encode(wire.row[r]);
      ended[r] ? slow_[first + r].Reset(row) : slow_[first + r].Push(row);
    }
  }

  void AddFinal(int64_t t, int64_t b, const Wire& wire, int64_t r, Played* p) {
    Final final{t - 1, b, std::vector<uint8_t>(p->store.row_bytes()), {}};
    p->store.EncodeRow([&](int i) { return wire(i); }, r, final.row.data());
    SlowStacks seen = slow_[b];
    seen.Push(world_.encode(wire.row[r]));
    final.want = seen.Shown();
    p->finals.push_back(final);
  }

  const World& world_;
  const int64_t rows_;
  Random rng_;
  ObservationStore carried_;
  std::vector<SlowStacks> slow_;
  bool started_ = false;
};

Values Numbers(const torch::Tensor& t) {
  const torch::Tensor flat = t.to(torch::kFloat64).contiguous().flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

Row RowOf(const Batch& batch, int64_t m) {
  Row row;
  for (const torch::Tensor& leaf : batch.leaf) row.push_back(Numbers(leaf[m]));
  return row;
}

void ExpectShapes(const Batch& batch, const Spaces& spaces, int64_t m) {
  ASSERT_EQ(batch.leaf.size(), spaces.observation.size());
  for (size_t i = 0; i < batch.leaf.size(); ++i) {
    EXPECT_EQ(batch.leaf[i].sizes().vec(),
              BatchShape(spaces.observation[i], m));
    EXPECT_EQ(batch.leaf[i].scalar_type(),
              TorchType(spaces.observation[i].dtype));
  }
}

constexpr int64_t kT = 17, kB = 5;

TEST(ObservationStoreTest, StacksEqualAFrameStackWrapperThroughEveryDoor) {
  for (const World& world : Worlds()) {
    SCOPED_TRACE(world.spec.ShortDebugString());
    Player player(world, kB, /*seed=*/1);
    for (int rollout = 0; rollout < 3; ++rollout) {
      const Played p = player.Play(kT);
      std::vector<int32_t> index(kT * kB);
      std::iota(index.rbegin(), index.rend(), 0);
      const Batch gathered =
          p.store.Gather(torch::tensor(index, torch::kInt32));
      ExpectShapes(gathered, world.spaces, kT * kB);
      Batch copied = p.store.EmptyBatch(kT * kB);
      ExpectShapes(copied, world.spaces, kT * kB);
      ObservationStore::Scratch scratch;
      for (int64_t t = 0; t < kT; ++t) {
        Observations seen;
        p.store.View(t, /*first=*/1, /*rows=*/kB - 2, &scratch, &seen);
        ASSERT_EQ(seen.rows, kB - 2);
        const Batch viewed = Borrow(seen, world.spaces);
        ExpectShapes(viewed, world.spaces, kB - 2);
        for (int64_t b = 0; b < kB; ++b) {
          const int64_t i = t * kB + b;
          ASSERT_EQ(RowOf(gathered, kT * kB - 1 - i), p.want[i])
              << t << " " << b;
          p.store.CopyRow(t, b, i, &copied);
          ASSERT_EQ(RowOf(copied, i), p.want[i]) << t << " " << b;
          if (b < 1 || b > kB - 2) continue;
          ASSERT_EQ(RowOf(viewed, b - 1), p.want[i]) << t << " " << b;
        }
      }
    }
  }
}

TEST(ObservationStoreTest, FinalObservationsFollowTheirStep) {
  for (const World& world : Worlds()) {
    SCOPED_TRACE(world.spec.ShortDebugString());
    Player player(world, kB, /*seed=*/2);
    for (int rollout = 0; rollout < 2; ++rollout) {
      const Played p = player.Play(kT);
      ASSERT_GT(p.finals.size(), 3u);
      ObservationStore::Scratch scratch;
      Batch copied = p.store.EmptyBatch(p.finals.size());
      for (size_t f = 0; f < p.finals.size(); ++f) {
        const Final& final = p.finals[f];
        p.store.CopyFinal(final.t, final.b, final.row.data(), f, &copied);
        EXPECT_EQ(RowOf(copied, f), final.want);
        Observations seen;
        p.store.ViewFinal(final.t, final.b, final.row.data(), &scratch, &seen);
        ASSERT_EQ(seen.rows, 1);
        EXPECT_EQ(RowOf(Borrow(seen, world.spaces), 0), final.want);
      }
    }
  }
}

// As a replay does: rollouts one after the other, each beginning where the last
// one ended.
TEST(ObservationStoreTest, ARingShowsItsNewestSteps) {
  constexpr int64_t kSteps = 11;
  for (const World& world : Worlds()) {
    SCOPED_TRACE(world.spec.ShortDebugString());
    Player player(world, kB, /*seed=*/3);
    ObservationStore ring(world.spaces, kSteps, kB, /*pinned=*/false,
                          ObservationStore::Form::kRing);
    std::vector<Row> want;  // [count * B]
    int64_t newest = -1;
    for (int rollout = 0; rollout < 4; ++rollout) {
      const Played p = player.Play(/*steps=*/rollout == 2 ? 2 : 9);
      for (int64_t t = 0; t < p.store.steps(); ++t) {
        if (t == 0 && newest >= 0) {
          for (int64_t b = 0; b < kB; ++b) {
            EXPECT_TRUE(ring.SameNewest(newest, b, p.store, 0));
          }
          ring.CopyNewest(newest, p.store, 0);  // over itself
          continue;
        }
        ring.CopyNewest(++newest, p.store, t);
        want.insert(want.end(), p.want.begin() + t * kB,
                    p.want.begin() + (t + 1) * kB);
        Batch copied = ring.EmptyBatch(1);
        const int64_t oldest =
            std::max<int64_t>(0, newest - kSteps + world.spaces.max_stack());
        for (int64_t s = oldest; s <= newest; ++s) {
          for (int64_t b = 0; b < kB; ++b) {
            ring.CopyRow(s, b, 0, &copied);
            ASSERT_EQ(RowOf(copied, 0), want[s * kB + b]) << s << " " << b;
          }
        }
      }
    }
    EXPECT_EQ(newest, 9 + 8 + 1 + 8 - 1);
  }
}

TEST(ObservationStoreTest, FinalsOfARingHaveItsFramesBefore) {
  for (const World& world : {Frames(4), Mixed()}) {
    Player player(world, kB, /*seed=*/4);
    const Played p = player.Play(kT);
    ObservationStore ring(world.spaces, kT + 3, kB, /*pinned=*/false,
                          ObservationStore::Form::kRing);
    for (int64_t t = 0; t < kT; ++t) ring.CopyNewest(t, p.store, t);
    Batch copied = ring.EmptyBatch(1);
    EXPECT_EQ(ring.row_bytes(), p.store.row_bytes());
    for (const Final& final : p.finals) {
      ring.CopyFinal(final.t, final.b, final.row.data(), 0, &copied);
      EXPECT_EQ(RowOf(copied, 0), final.want);
    }
  }
}

// What a ring has never seen is not shown: its first step repeats itself.
TEST(ObservationStoreTest, NothingIsOlderThanARingsFirstStep) {
  const World world = Frames(4);
  const int64_t bytes = 6;
  ObservationStore span(world.spaces, 8, 1);
  std::vector<uint8_t> never(8, 0);
  for (uint8_t t = 0; t < 8; ++t) {
    const std::string frame(bytes, static_cast<char>(t));
    span.Write(t, 0, 1, [&](int) -> absl::string_view { return frame; });
    if (t == 0) span.Restart(0, 0, 1);
    if (t > 0) span.Continue(t, 0, 1, never.data());
  }
  ObservationStore ring(world.spaces, 8, 1, /*pinned=*/false,
                        ObservationStore::Form::kRing);
  Batch shown = ring.EmptyBatch(1);
  std::vector<Values> newest;
  for (int64_t t = 0; t < 4; ++t) {
    ring.CopyNewest(t, span, 4 + t);
    EXPECT_TRUE(ring.SameNewest(t, 0, span, 4 + t));
    ring.CopyRow(t, 0, 0, &shown);
    newest.push_back(
        Numbers(shown.leaf[0].select(0, 0).flatten(1).select(1, 0)));
  }
  EXPECT_THAT(newest,
              ElementsAre(ElementsAre(4, 4, 4, 4), ElementsAre(4, 4, 4, 5),
                          ElementsAre(4, 4, 5, 6), ElementsAre(4, 5, 6, 7)));
}

TEST(ObservationStoreTest, NothingBeforeACutIsShownAfterIt) {
  const World world = Frames(4);
  ObservationStore span(world.spaces, 8, 2);
  for (int64_t array = 0; array < 11; ++array) {
    span.leaf(0)[array].fill_(array);
  }
  span.age().fill_(3);
  ObservationStore ring(world.spaces, 16, 2, /*pinned=*/false,
                        ObservationStore::Form::kRing);
  ring.CopyNewest(0, span, 0, /*steps=*/4);
  ring.Cut(/*t=*/4, /*b=*/1);
  ring.CopyNewest(4, span, 4, /*steps=*/4);
  Batch shown = ring.EmptyBatch(1);
  const auto row = [&](int64_t t, int64_t b) {
    ring.CopyRow(t, b, 0, &shown);
    return Numbers(shown.leaf[0].select(0, 0).flatten(1).select(1, 0));
  };
  EXPECT_THAT(row(3, 1), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(row(4, 1), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(row(5, 1), ElementsAre(7, 7, 7, 8));
  EXPECT_THAT(row(7, 1), ElementsAre(7, 8, 9, 10));
  EXPECT_THAT(row(4, 0), ElementsAre(4, 5, 6, 7));
  for (int64_t b = 0; b < 2; ++b) {
    EXPECT_TRUE(ring.SameNewest(5, b, span, 5));
  }
}

TEST(ObservationStoreTest, OneUnlikeByteOrAgeIsNotTheSame) {
  const World world = Mixed();
  Player player(world, kB, /*seed=*/5);
  const Played p = player.Play(kT);
  for (int64_t b = 0; b < kB; ++b) {
    EXPECT_TRUE(p.store.SameNewest(kT - 1, b, p.store, kT - 1));
  }
  for (int i = 0; i < p.store.num_leaves(); ++i) {
    ObservationStore other(world.spaces, 1, kB);
    other.CopyStep(0, p.store, kT - 1);
    ObservationStore ring(world.spaces, 4, kB, /*pinned=*/false,
                          ObservationStore::Form::kRing);
    // Step 6 of a ring: old enough for any age.
    ring.CopyNewest(6, other, 0);
    // The last byte of row 2's newest array of leaf `i`.
    const torch::Tensor newest = other.leaf(i)[-1][2];
    static_cast<uint8_t*>(newest.data_ptr())[newest.nbytes() - 1] ^= 1;
    for (int64_t b = 0; b < kB; ++b) {
      EXPECT_EQ(ring.SameNewest(6, b, other, 0), b != 2) << i;
    }
  }
  ObservationStore older(world.spaces, 1, kB);
  older.CopyStep(0, p.store, kT - 1);
  ObservationStore ring(world.spaces, 4, kB, /*pinned=*/false,
                        ObservationStore::Form::kRing);
  ring.CopyNewest(6, older, 0);
  older.age()[0][3] = older.age()[0][3] + 1;
  for (int64_t b = 0; b < kB; ++b) {
    EXPECT_EQ(ring.SameNewest(6, b, older, 0), b != 3);
  }
}

TEST(ObservationStoreTest, AgesCountFromTheResetUpToTheLargestStack) {
  const World world = Frames(4);
  ObservationStore store(world.spaces, 6, 2);
  store.age().fill_(3);
  for (int64_t t = 1; t < 6; ++t) {
    const uint8_t ended[] = {t == 3, t == 5};
    store.Continue(t, 0, 2, ended);
  }
  EXPECT_THAT(Numbers(store.age().select(1, 0)), ElementsAre(3, 3, 3, 0, 1, 2));
  EXPECT_THAT(Numbers(store.age().select(1, 1)), ElementsAre(3, 3, 3, 3, 3, 0));
  store.Restart(2, 1, 1);
  EXPECT_THAT(Numbers(store.age()[2]), ElementsAre(3, 0));
}

TEST(ObservationStoreTest, TheLargestStackThatAByteCounts) {
  const World world = OneLeaf("dtype: FLOAT32 frame_stack: 256");
  Player player(world, 2, /*seed=*/6);
  for (int rollout = 0; rollout < 5; ++rollout) {
    const Played p = player.Play(150);
    const Batch all = p.store.Gather(torch::arange(300, torch::kInt32));
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(RowOf(all, i), p.want[i]);
  }
}

TEST(ObservationStoreTest, EveryFrameIsStoredOnce) {
  const World frames = OneLeaf("dtype: UINT8 shape: [84, 84] frame_stack: 4");
  EXPECT_EQ(ObservationStore(frames.spaces, 129, 8).bytes(),
            (129 + 3) * 8 * 84 * 84 + 129 * 8);
  EXPECT_EQ(ObservationStore(frames.spaces, 129, 8, /*pinned=*/false,
                             ObservationStore::Form::kRing)
                .bytes(),
            129 * 8 * (84 * 84 + 1));

  const World mixed = Mixed();
  // d, f, h, a | b | c | e | g | mask
  const int64_t row[] = {9 * 4, 2 * 4, 15, 2 * 8, 6 * 4, 10};
  const int64_t stack[] = {1, 3, 4, 2, 5, 1};
  int64_t span = 20 * 3, ring = 20 * 3;
  const ObservationStore store(mixed.spaces, 20, 3);
  ASSERT_EQ(store.num_leaves(), 6);
  for (int i = 0; i < 6; ++i) {
    span += (20 + stack[i] - 1) * 3 * row[i];
    ring += 20 * 3 * row[i];
    EXPECT_EQ(store.leaf(i).size(0), 20 + stack[i] - 1);
    EXPECT_EQ(store.leaf(i).size(1), 3);
  }
  EXPECT_EQ(store.bytes(), span);
  EXPECT_EQ(ObservationStore(mixed.spaces, 20, 3, /*pinned=*/false,
                             ObservationStore::Form::kRing)
                .bytes(),
            ring);
  // One of each, each where its type may lie.
  EXPECT_GE(store.row_bytes(), 36 + 8 + 15 + 16 + 24 + 10);
  EXPECT_LE(store.row_bytes(), 36 + 8 + 15 + 16 + 24 + 10 + 6 * 7);
}

TEST(ObservationStoreTest, TheNumbersThatAreScaledComeFirst) {
  const World world = Mixed();
  ASSERT_EQ(world.spaces.normalized(), 6);  // d, f, h
  Player player(world, kB, /*seed=*/7);
  Played p = player.Play(kT);
  ASSERT_EQ(p.store.stride(), 9);
  for (int64_t b = 0; b < kB; ++b) {
    const float* row =
        p.store.Numbers(4, /*first=*/1) + (b - 1) * p.store.stride();
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(row[i], p.want[4 * kB + b][0][i]);
    }
  }
  *p.store.Numbers(4, 1) = 77;
  EXPECT_EQ(p.store.leaf(0)[4][1][0].item<float>(), 77);
  ASSERT_FALSE(p.finals.empty());
  Final& final = p.finals[0];
  const float* row = ObservationStore::NumbersOf(final.row.data());
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(row[i], final.want[0][i]);
}

// It was checked where it came from, where it may be written on.
TEST(ObservationStoreTest, AValueThatIsNoneOfALeafsIsTheNearest) {
  const World world = OneLeaf("dtype: INT64 num_values: 3");
  for (const auto& [value, nearest] :
       {std::pair<int64_t, int>(3, 2), {-1, 0}}) {
    ObservationStore store(world.spaces, 1, 1);
    const std::string bytes(reinterpret_cast<const char*>(&value), 8);
    store.Write(0, 0, 1, [&](int) -> absl::string_view { return bytes; });
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(store.leaf(0)[0][0][i].item<float>(), i == nearest);
    }
  }
}

}  // namespace
}  // namespace flotilla
