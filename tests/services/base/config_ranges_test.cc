#include "services/base/config_ranges.h"

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/range.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Numbers of any size and sign, and why.
const std::map<std::string, std::string>& Unbounded() {
  static const auto& fields = *new std::map<std::string, std::string>{
      {"seed", "every number is a seed"},
      {"sac.target_entropy", "the entropy of a density may be any"},
      {"evaluation.stop_return", "returns have any size and sign"},
      {"evaluation.min_training_return", "returns have any size and sign"}};
  return fields;
}

bool IsNumber(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_STRING:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return false;
    default:
      return true;
  }
}

// A number of RunConfig: the sections on its way, and itself.
using Path = std::vector<const FieldDescriptor*>;

std::string Name(const Path& path) {
  return absl::StrJoin(
      path, ".", [](std::string* out, const FieldDescriptor* field) {
        const bool many = field->is_repeated() && field->message_type();
        absl::StrAppend(out, field->name(), many ? "[0]" : "");
      });
}

const v1::Range& RangeOf(const Path& path) {
  return path.back()->options().GetExtension(v1::range);
}

void Collect(const Descriptor* type, const Path& above,
             std::vector<Path>* numbers) {
  for (int i = 0; i < type->field_count(); ++i) {
    Path path = above;
    path.push_back(type->field(i));
    if (IsNumber(type->field(i))) numbers->push_back(path);
    if (type->field(i)->message_type() != nullptr) {
      Collect(type->field(i)->message_type(), path, numbers);
    }
  }
}

// Of all messages that RunConfig has, each field once.
void CollectFields(const Descriptor* type,
                   std::set<const FieldDescriptor*>* fields) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (!fields->insert(field).second || field->is_map()) continue;
    if (field->message_type() != nullptr) {
      CollectFields(field->message_type(), fields);
    }
  }
}

std::vector<Path> Numbers() {
  std::vector<Path> numbers;
  Collect(v1::RunConfig::descriptor(), {}, &numbers);
  return numbers;
}

// A configuration in which one number is `value`.
v1::RunConfig With(const Path& path, double value) {
  v1::RunConfig config;
  Message* section = &config;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const auto* reflection = section->GetReflection();
    section = path[i]->is_repeated()
                  ? reflection->AddMessage(section, path[i])
                  : reflection->MutableMessage(section, path[i]);
  }
  const Reflection* reflection = section->GetReflection();
  const FieldDescriptor* field = path.back();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      field->is_repeated()
          ? reflection->AddInt32(section, field, static_cast<int32_t>(value))
          : reflection->SetInt32(section, field, static_cast<int32_t>(value));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      reflection->SetInt64(section, field, static_cast<int64_t>(value));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      reflection->SetUInt64(section, field, static_cast<uint64_t>(value));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection->SetDouble(section, field, value);
      break;
    default:
      ADD_FAILURE()
          << Name(path)
          << " has a type of number that config_ranges.cc passes over";
  }
  return config;
}

// "path message" of each problem.
std::vector<std::string> Problems(const v1::RunConfig& config) {
  std::vector<ConfigProblem> problems;
  FindOutOfRange(config, &problems);
  std::vector<std::string> lines;
  for (const ConfigProblem& problem : problems) {
    lines.push_back(absl::StrCat(problem.path, " ", problem.message));
  }
  return lines;
}

std::string Problem(const Path& path, double value) {
  return absl::StrJoin(Problems(With(path, value)), "\n");
}

TEST(ConfigRangesTest, EveryNumberHasARangeOrAReason) {
  for (const Path& path : Numbers()) {
    EXPECT_NE(path.back()->options().HasExtension(v1::range),
              Unbounded().contains(Name(path)))
        << Name(path)
        << ": write a range beside it in config.proto, or name it here";
  }
}

TEST(ConfigRangesTest, EveryReasonIsOfANumber) {
  std::set<std::string> names;
  for (const Path& path : Numbers()) names.insert(Name(path));
  for (const auto& [name, reason] : Unbounded()) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(ConfigRangesTest, EveryDefaultIsInItsRange) {
  v1::RunConfig config;
  EXPECT_THAT(Problems(config), IsEmpty());
  config.mutable_dqn();
  EXPECT_THAT(Problems(config), IsEmpty());
  config.mutable_impala();
  EXPECT_THAT(Problems(config), IsEmpty());
}

TEST(ConfigRangesTest, EveryBoundIsKept) {
  for (const Path& path : Numbers()) {
    const v1::Range& range = RangeOf(path);
    const bool whole =
        path.back()->cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
    const double step = range.odd() ? 2 : whole ? 1 : 1e-6;
    const auto good = [&](double value) {
      EXPECT_EQ(Problem(path, value), "") << value;
    };
    const auto bad = [&](double value) {
      EXPECT_EQ(Problem(path, value).rfind(Name(path) + " is ", 0), 0)
          << Name(path) << ": " << value;
    };
    if (range.has_min()) good(range.min()), bad(range.min() - step);
    if (range.has_max()) good(range.max()), bad(range.max() + step);
    if (range.has_above()) bad(range.above()), good(range.above() + step);
    if (range.has_below()) bad(range.below()), good(range.below() - step);
    if (range.odd()) good(range.min() + 2), bad(range.min() + 1);
  }
}

TEST(ConfigRangesTest, EveryNumberIsFinite) {
  for (const Path& path : Numbers()) {
    if (path.back()->cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE) continue;
    for (double value : {kNan, kInfinity, -kInfinity}) {
      const std::string text = absl::StrCat(Name(path), " is ", value);
      EXPECT_EQ(Problem(path, value).rfind(text + "; it must be finite", 0), 0)
          << Problem(path, value);
    }
  }
}

TEST(ConfigRangesTest, MessagesNameValueAndExpectation) {
  v1::RunConfig config;
  config.set_total_env_steps(0);
  config.mutable_env()->set_quorum(1.5);
  config.mutable_env()->mutable_options()->mutable_maze()->set_size(8);
  config.mutable_model()->add_hidden(64);
  config.mutable_model()->add_hidden(-1);
  config.mutable_optimizer()->set_learning_rate(kInfinity);
  config.mutable_optimizer()->set_epsilon(1e-40);  // 0, where denormals are
  config.mutable_optimizer()->set_beta1(1);
  config.mutable_evaluation()->set_stop_return(kNan);
  config.mutable_distributed()->set_timeout_seconds(0);
  EXPECT_THAT(
      Problems(config),
      ElementsAre(
          "total_env_steps is 0; it must be at least 1",
          "env.options.maze.size is 8; it must be odd and at least 5",
          "env.quorum is 1.5; it must be from 0 to 1",
          "model.hidden is -1; it must be at least 1",
          "optimizer.learning_rate is inf; it must be finite and above 0",
          "optimizer.epsilon is 1e-40; it must be at least 1e-15",
          "optimizer.beta1 is 1; it must be at least 0 and below 1",
          "evaluation.stop_return is nan; it must be finite",
          "distributed.timeout_seconds is 0; it must be above 0"));
}

// The lines of config.proto.
std::vector<std::string> ConfigProto() {
  namespace fs = std::filesystem;
  const char* source = std::getenv("FLOTILLA_SOURCE");
  const fs::path root = source != nullptr ? fs::path(source)
                                          : fs::path(__FILE__)
                                                .parent_path()  // base
                                                .parent_path()  // services
                                                .parent_path()  // tests
                                                .parent_path();
  const auto text = WholeFile(root / "proto/flotilla/v1/config.proto");
  return absl::StrSplit(text.value_or(""), '\n');
}

// Sections of RunConfig say in their own messages what they are about.
TEST(ConfigRangesTest, EveryFieldSaysWhatItIs) {
  const std::regex field(
      "  +(optional|repeated|map|[A-Z]\\w*)\\b.* = [0-9]+.*");
  const std::regex section("  +(optional )?[A-Z]\\w*Config \\w+ = [0-9]+;");
  const std::regex comment(" +// .*");
  const std::regex value("  [A-Z0-9_]+ = .*");  // of an enum
  const std::vector<std::string> lines = ConfigProto();
  size_t fields = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (!std::regex_match(lines[i], field) ||
        std::regex_match(lines[i], value)) {
      continue;
    }
    ++fields;
    EXPECT_TRUE(absl::StrContains(lines[i], "//") ||
                std::regex_match(lines[i - 1], comment) ||
                std::regex_match(lines[i], section))
        << lines[i] << ": say here or above it what it is, and its unit";
  }
  std::set<const FieldDescriptor*> all;
  CollectFields(v1::RunConfig::descriptor(), &all);
  EXPECT_EQ(fields, all.size());
}

TEST(ConfigRangesTest, UnsetWithoutADefaultIsNotLookedAt) {
  v1::RunConfig config;
  EXPECT_THAT(Problems(config), IsEmpty());
  config.set_total_updates(0);
  EXPECT_THAT(Problems(config),
              ElementsAre("total_updates is 0; it must be at least 1"));
}

}  // namespace
}  // namespace flotilla
