#include "launcher/resume.h"

#include <google/protobuf/text_format.h>

#include <filesystem>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/config.h"
#include "services/base/run_changes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

v1::RunConfig Parse(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// What `flotilla train --resume` with `flags` makes of a run of `before`.
absl::StatusOr<Topology> Resumed(const TopologyFlags& before,
                                 TopologyFlags flags,
                                 const Environment& environment = {}) {
  const TempDir temp;
  const RunFolder folder(temp.path());
  EXPECT_TRUE(
      WriteRunTopology(folder, DetectTopology(before, {}, 0).value()).ok());
  const auto note = ReadRunTopology(folder);
  if (!note.ok()) return note.status();
  const auto found = DetectTopology(flags, environment, 0);
  if (!found.ok()) return found.status();
  const absl::Status kept = KeepTopology(**note, *found, &flags);
  if (!kept.ok()) return kept;
  return DetectTopology(flags, environment, 0);
}

TEST(KeepTopologyTest, TwoLearnersStayTwoUnlessToldOtherwise) {
  const auto kept = Resumed({.nproc_per_node = "2"}, {});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->num_learners, 2);
  EXPECT_EQ(kept->max_world_size, 2);
  EXPECT_EQ(
      Resumed({.nproc_per_node = "2"}, {.standalone = true})->max_world_size,
      2);
  for (const char* told : {"1", "3", "auto"}) {
    const auto otherwise =
        Resumed({.nproc_per_node = "2"}, {.nproc_per_node = told});
    ASSERT_TRUE(otherwise.ok()) << otherwise.status();
    EXPECT_EQ(otherwise->max_world_size, told[0] == '3' ? 3 : 1) << told;
  }
}

TEST(KeepTopologyTest, SeveralNodesAreNamedAgain) {
  const TopologyFlags before = {.nproc_per_node = "2",
                                .nnodes = "1:4",
                                .node_rank = 0,
                                .coordinator = "n0:1"};
  EXPECT_THAT(Message(Resumed(before, {}).status()),
              AllOf(HasSubstr("2 to 8 learners on 1 to 4 nodes"),
                    HasSubstr("--nnodes 1:4 --node-rank R")));
  const auto alone = Resumed(before, {.nnodes = "1"});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->max_world_size, 2);
  const auto again =
      Resumed(before, {.nnodes = "1:4", .node_rank = 1, .coordinator = "n0:1"});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->num_learners, 2);
  EXPECT_EQ(again->max_world_size, 8);
}

TEST(KeepTopologyTest, ARankFromTheEnvironmentCounts) {
  const auto kept =
      Resumed({.nproc_per_node = "2"}, {},
              {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->num_learners, 1);
}

TEST(RunTopologyTest, NoNoteIsNoneAndANoteThatIsNoneIsNamed) {
  const TempDir temp;
  const RunFolder folder(temp.path());
  EXPECT_FALSE(ReadRunTopology(folder)->has_value());
  for (const char* bad :
       {"", "learners_per_node: 0 min_learners: 1 max_learners: 1",
        "learners_per_node: 2 min_learners: 2 max_learners: 1", "{"}) {
    WriteFile(folder.topology(), bad);
    const auto read = ReadRunTopology(folder);
    EXPECT_TRUE(absl::IsDataLoss(read.status())) << bad;
    EXPECT_THAT(Message(read.status()), HasSubstr(folder.topology()));
  }
}

TEST(DescribeTopologyChangeTest, SaysWhatAnUpdateIsNow) {
  v1::RunTopology before;
  before.set_learners_per_node(2);
  before.set_min_learners(2);
  before.set_max_learners(2);
  const v1::RunConfig config = Resolved(Parse("ppo {}"));
  EXPECT_EQ(
      DescribeTopologyChange(before, DetectTopology({}, {}, 0).value(), config),
      "the run had 2 learners and goes on with 1 learner: an update is "
      "of 512 steps, not 1,024");
  EXPECT_EQ(DescribeTopologyChange(
                before, DetectTopology({.nproc_per_node = "2"}, {}, 0).value(),
                config),
            "");
}

TEST(FindChangesTest, NamesEveryFieldThatDiffers) {
  const auto changes = FindChanges(
      Parse("ppo {} model { hidden: 64 hidden: 64 }"),
      Parse("ppo { epochs: 9 } total_env_steps: 7 env { options { gym_kwargs "
            "{ key: 'a' value: '1' } } } evaluation { stop_return: 1.5 } "
            "optimizer { learning_rate: 1 type: MUON }"));
  std::vector<std::string> lines;
  for (const FieldChange& c : changes) {
    lines.push_back(c.path + " " + c.was + " -> " + c.is);
  }
  EXPECT_THAT(
      lines,
      testing::ElementsAre(
          "total_env_steps 500000 -> 7",
          "env.options.gym_kwargs [] -> [key: \"a\" value: \"1\"]",
          "optimizer.type ADAM -> MUON", "optimizer.learning_rate 0.00025 -> 1",
          "ppo.epochs 4 -> 9", "evaluation.stop_return unset -> 1.5"));
  // A default written out is none.
  EXPECT_THAT(FindChanges(Parse("ppo {}"), Parse("ppo { epochs: 4 }")),
              IsEmpty());
}

TEST(FindChangesTest, AFlagIsOfAFieldOrOfAnEntryOfAMap) {
  const v1::RunConfig before =
      Parse("custom { options { key: \"a\" value: \"1\" } }");
  const v1::RunConfig after =
      Parse("custom { options { key: \"a\" value: \"2\" } }");
  const std::vector<FieldChange> changes = FindChanges(before, after);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].path, "custom.options");
  EXPECT_TRUE(changes[0].IsOf("custom.options.a=2"));
  EXPECT_FALSE(changes[0].IsOf("custom.options_of_another=2"));
  EXPECT_FALSE(changes[0].IsOf("custom.library=options.so"));
  const FieldChange epochs = {.path = "ppo.epochs", .was = "1", .is = "2"};
  EXPECT_TRUE(epochs.IsOf("ppo.epochs=2"));
  EXPECT_FALSE(epochs.IsOf("ppo.epochs_of_another=2"));
}

TEST(ChangedPathsTest, OfCustomOptionsEachEntryIsNamed) {
  const v1::RunConfig before = Parse(
      "custom { library: 'a.so' options { key: 'kept' value: '1' } options { "
      "key: 'other' value: '1' } options { key: 'gone' value: '1' } }");
  const v1::RunConfig after = Parse(
      "total_env_steps: 7 custom { library: 'a.so' options { key: 'kept' "
      "value: '1' } options { key: 'other' value: '2' } options { key: 'new' "
      "value: '1' } }");
  EXPECT_THAT(ChangedPaths(before, after),
              testing::UnorderedElementsAre(
                  "total_env_steps", "custom.options", "custom.options.gone",
                  "custom.options.new", "custom.options.other"));
  EXPECT_THAT(ChangedPaths(before, before), IsEmpty());
}

// A run that goes on does what its flags and file say by now.
TEST(ChangedPathsTest, WhatWasSetInFlightGivesWayToAnOptionGivenAnew) {
  v1::Changes set;
  for (const char* text :
       {"custom.options.entropy_cost=0.5", "custom.options.clip=0.1"}) {
    v1::Change* change = set.add_change();
    change->set_number(set.change_size());
    change->set_update(5);
    change->add_override(text);
  }
  const v1::RunConfig began = Parse("custom { library: 'a.so' }");
  const v1::RunConfig now = Parse(
      "custom { library: 'a.so' options { key: 'entropy_cost' value: '0.01' } "
      "}");
  const v1::Changes kept = WithoutFields(set, ChangedPaths(began, now));
  ASSERT_EQ(kept.change_size(), 1);
  EXPECT_EQ(kept.change(0).override(0), "custom.options.clip=0.1");
  EXPECT_EQ(WithoutFields(set, ChangedPaths(began, began)).change_size(), 2);
}

TEST(CheckResumableTest, LearningRateAndLengthMayChange) {
  EXPECT_TRUE(CheckResumable(Parse("ppo {}"),
                             Parse("ppo { epochs: 9 } total_env_steps: 7 "
                                   "optimizer { learning_rate: 1 }"))
                  .ok());
}

TEST(CheckResumableTest, EnvironmentAlgorithmAndModelMayNot) {
  const v1::RunConfig before = Parse("ppo {}");
  EXPECT_THAT(Message(CheckResumable(before, Parse("dqn {}"))),
              HasSubstr("the algorithm was ppo and would be dqn"));
  EXPECT_THAT(
      Message(CheckResumable(before, Parse("ppo {} env { id: \"Maze\" }"))),
      HasSubstr("env.id was \"CartPole-v1\" and would be \"Maze\""));
  EXPECT_THAT(
      Message(CheckResumable(
          before, Parse("ppo {} model { hidden: 8 activation: RELU }"))),
      AllOf(HasSubstr("model.hidden was [64, 64] and would be [8]"),
            HasSubstr("model.activation was TANH and would be RELU")));
  EXPECT_THAT(
      Message(CheckResumable(
          before, Parse("ppo {} optimizer { type: MUON } selfplay {}"))),
      AllOf(HasSubstr("optimizer.type was ADAM and would be MUON"),
            HasSubstr("the run had no selfplay")));
  EXPECT_THAT(
      Message(CheckResumable(Parse("ppo {} selfplay {}"),
                             Parse("ppo {} selfplay { pool_size: 3 }"))),
      HasSubstr("selfplay.pool_size was "));
  EXPECT_THAT(
      Message(CheckResumable(Parse("dqn {}"), Parse("dqn { dueling: false }"))),
      HasSubstr("dqn.dueling was true and would be false"));
}

class KeepFilesTest : public testing::Test {
 protected:
  KeepFilesTest() : source_(temp_.path()) {
    WriteFile(NetworkFile(), "weights");
    WriteFile(temp_ / "same.pt", "weights");
    WriteFile(temp_ / "other.pt", "other weights");
  }

  std::string NetworkFile() const { return source_.path() + "/network.pt"; }

  // The files that configurations with `before` and `after` name after it.
  absl::StatusOr<std::pair<std::string, std::string>> Kept(
      const std::string& before, const std::string& after) {
    v1::RunConfig a, b;
    if (!before.empty()) a.mutable_model()->set_torchscript(before);
    if (!after.empty()) b.mutable_model()->set_torchscript(after);
    const absl::Status status = KeepFiles(source_, &a, &b);
    if (!status.ok()) return status;
    return std::pair(a.model().torchscript(), b.model().torchscript());
  }

  const TempDir temp_;
  const RunFolder source_;
};

TEST_F(KeepFilesTest, ARunGoesOnWithItsOwnWhereverItsFolderIs) {
  const std::pair<std::string, std::string> kept = {NetworkFile(),
                                                    NetworkFile()};
  const std::string was = "/before/it/was/moved/network.pt";
  EXPECT_EQ(Kept(was, was).value(), kept);
  // The command line that began it: the file is as it was, or gone.
  EXPECT_EQ(Kept(was, temp_ / "same.pt").value(), kept);
  EXPECT_EQ(Kept(was, temp_ / "gone.pt").value(), kept);
}

TEST_F(KeepFilesTest, AnotherOneIsRefusedOrLeftToCheckResumable) {
  const auto other = Kept("network.pt", temp_ / "other.pt");
  EXPECT_THAT(Message(other.status()),
              AllOf(HasSubstr("other.pt"), HasSubstr(NetworkFile())));
  EXPECT_EQ(Kept("", "net.pt").value(),
            std::pair(std::string(), std::string("net.pt")));
  EXPECT_EQ(Kept("net.pt", "").value(),
            std::pair(std::string("net.pt"), std::string()));
}

TEST_F(KeepFilesTest, AnotherBuildOfALibraryTakesItsPlace) {
  WriteFile(source_.path() + "/algorithm.so", "a build");
  WriteFile(temp_ / "again.so", "another build");
  const auto kept = [&](const std::string& now) {
    v1::RunConfig a, b;
    a.mutable_custom()->set_library("/before/algorithm.so");
    b.mutable_custom()->set_library(now);
    EXPECT_OK(KeepFiles(source_, &a, &b));
    EXPECT_EQ(a.custom().library(), b.custom().library());
    return b.custom().library();
  };
  EXPECT_EQ(kept("/before/algorithm.so"), source_.path() + "/algorithm.so");
  EXPECT_EQ(kept(temp_ / "gone.so"), source_.path() + "/algorithm.so");
  EXPECT_EQ(kept(temp_ / "again.so"), temp_ / "again.so");
}

class NothingLeftTest : public testing::Test {
 protected:
  NothingLeftTest() : folder_(temp_.path()) {
    fs::create_directories(Checkpoint());
    WriteFile(Checkpoint() + "/progress.json",
              R"({"update": 4, "global_step": 8192})");
  }

  std::string Checkpoint() const { return temp_ / "checkpoints/step_5"; }

  std::string Left(const std::string& status, const std::string& config,
                   int updates = 4) {
    WriteFile(folder_.summary(),
              absl::StrCat(R"({"status": ")", status, R"(", "updates": )",
                           updates, R"(, "eval_mean_return": 480.5})"));
    return NothingLeft(folder_, Checkpoint(), Resolved(Parse(config)));
  }

  TempDir temp_;
  const RunFolder folder_;
};

TEST_F(NothingLeftTest, ACompletedRunIsOverUntilItIsMadeLonger) {
  EXPECT_THAT(Left("completed", "ppo {} total_env_steps: 8192"),
              AllOf(HasSubstr("completed at update 4, after 8,192 steps"),
                    HasSubstr("total_env_steps is 8192")));
  EXPECT_EQ(Left("completed", "ppo {} total_env_steps: 8193"), "");
  EXPECT_THAT(Left("completed", "ppo {} total_updates: 4"),
              HasSubstr("total_updates is 4"));
  EXPECT_EQ(Left("completed", "ppo {} total_updates: 5"), "");
}

TEST_F(NothingLeftTest, ASolvedRunIsOverUntilMoreIsAsked) {
  EXPECT_THAT(Left("solved", "ppo {} evaluation { stop_return: 475 }"),
              HasSubstr("solved at update 4 by an evaluation of 480.5"));
  EXPECT_EQ(Left("solved", "ppo {} evaluation { stop_return: 490 }"), "");
  EXPECT_EQ(Left("solved", "ppo {}"), "");
}

TEST_F(NothingLeftTest, WhatWasCutShortHasSomethingLeft) {
  for (const char* status : {"preempted", "stopped", "failed"}) {
    EXPECT_EQ(Left(status, "ppo {} total_env_steps: 8192"), "") << status;
  }
  // The summary is of before the run went on.
  EXPECT_EQ(Left("completed", "ppo {} total_env_steps: 8192", 3), "");
  fs::remove(folder_.summary());
  EXPECT_EQ(NothingLeft(folder_, Checkpoint(),
                        Resolved(Parse("ppo {} total_env_steps: 8192"))),
            "");
}

}  // namespace
}  // namespace flotilla
