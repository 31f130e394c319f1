#include "services/base/global_sizes.h"

#include <glog/logging.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"
#include "services/base/config_rules.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The multiples of `unit` around `value`: "8 or 12".
std::string Nearby(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return below == 0 ? absl::StrCat(unit)
                    : absl::StrCat(below, " or ", below + unit);
}

class Division {
 public:
  explicit Division(int learners) : learners_(learners) {}

  // A learner's share of `value`, which has to be a multiple of `unit` of its
  // own; `unit_name` is what that is made of.
  int64_t Share(const std::string& path, int64_t value, int64_t unit = 1,
                const std::string& unit_name = "") {
    const int64_t all = learners_ * unit;
    if (value % all != 0) {
      problems_.push_back(absl::StrCat(
          path, " is ", value, " for all learners (distributed.sizes GLOBAL), ",
          "not divisible by ", learners_, " learners",
          unit == 1 ? "" : absl::StrCat(" * ", unit_name, " = ", all), "; use ",
          Nearby(value, all)));
    }
    return value / learners_;
  }

  std::vector<std::string>& problems() { return problems_; }

 private:
  const int64_t learners_;
  std::vector<std::string> problems_;
};

// The algorithm's own sizes, which its row names.
void ShareAlgorithm(v1::RunConfig* share, Division* division) {
  const std::string name = AlgorithmName(*share);
  const std::vector<std::string> sizes = TraitsOf(*share).GlobalSizes();
  const FieldDescriptor* options =
      v1::RunConfig::descriptor()->FindFieldByName(name);
  if (sizes.empty() || options == nullptr) return;
  Message* message = share->GetReflection()->MutableMessage(share, options);
  const Reflection& fields = *message->GetReflection();
  for (const std::string& size : sizes) {
    const FieldDescriptor* field =
        options->message_type()->FindFieldByName(size);
    const std::string path = absl::StrCat(name, ".", size);
    CHECK(field != nullptr) << "there is no " << path;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      const int64_t part =
          division->Share(path, fields.GetInt32(*message, field));
      fields.SetInt32(message, field, static_cast<int32_t>(part));
    } else {
      fields.SetInt64(message, field,
                      division->Share(path, fields.GetInt64(*message, field)));
    }
  }
}

}  // namespace

absl::StatusOr<v1::RunConfig> SizesOfLearner(const v1::RunConfig& config,
                                             int world_size) {
  if (config.distributed().sizes() == v1::PER_LEARNER) return config;
  v1::RunConfig share = config;
  share.mutable_distributed()->set_sizes(v1::PER_LEARNER);
  Division division(world_size);
  v1::EnvConfig& env = *share.mutable_env();
  env.set_num_envs(static_cast<int32_t>(division.Share(
      "env.num_envs", env.num_envs(),
      std::max<int64_t>(1, int64_t{env.num_workers()} * env.groups()),
      absl::StrCat("env.num_workers * env.groups (", env.num_workers(), " * ",
                   env.groups(), ")"))));
  ShareAlgorithm(&share, &division);
  if (division.problems().empty()) {
    for (const ConfigProblem& problem : FindProblems(share)) {
      division.problems().push_back(
          absl::StrCat("a share of one in ", world_size,
                       " learners "
                       "(distributed.sizes GLOBAL): ",
                       problem.path, " ", problem.message));
    }
  }
  if (division.problems().empty()) return share;
  return absl::InvalidArgumentError(absl::StrJoin(division.problems(), "\n"));
}

}  // namespace flotilla
