#include "learner/training/agreement.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Layouts that differ must not differ in the size of the collective, or that
// fails before anybody can say why: all are filled up to a multiple of this.
constexpr size_t kGrain = 512;  // 4 KiB

}  // namespace

// FNV-1a, cut to the 52 bits that a double keeps whole.
double HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return static_cast<double>((hash >> 12) | 1);
}

Agreement::Agreement(int rank, int world_size)
    : rank_(rank), world_size_(world_size), values_(world_size, 0.0) {}

size_t Agreement::Extend(absl::string_view kind, absl::string_view name,
                         size_t size) {
  absl::StrAppend(&layout_, kind, " ", name, " ", size, "\n");
  const size_t at = values_.size();
  values_.resize(at + size, 0.0);
  return at;
}

Agreement::Sum Agreement::AddSum(absl::string_view name, double mine) {
  const size_t at = Extend("sum", name, 1);
  values_[at] = mine;
  return {at};
}

Agreement::Sum Agreement::AddFrom(int source, absl::string_view name,
                                  double mine) {
  return AddSum(name, rank_ == source ? mine : 0);
}

Agreement::Mean Agreement::AddMean(absl::string_view name, double mine) {
  const size_t at = Extend("mean", name, 1);
  values_[at] = mine;
  return {at};
}

Agreement::Vote Agreement::AddVote(absl::string_view name, bool mine) {
  const size_t at = Extend("vote", name, 1);
  values_[at] = mine;
  return {at};
}

Agreement::Sums Agreement::AddSums(absl::string_view name,
                                   std::span<const double> mine) {
  const size_t at = Extend("sums", name, mine.size());
  std::copy(mine.begin(), mine.end(), values_.begin() + at);
  return {at, mine.size()};
}

Agreement::PerRank Agreement::AddPerRank(absl::string_view name, double mine) {
  const size_t at = Extend("per rank", name, world_size_);
  values_[at + rank_] = mine;
  return {at};
}

absl::Status Agreement::Reduce(Collective* collective) {
  hash_ = HashOf(layout_);
  values_[rank_] = hash_;
  values_.resize((values_.size() + kGrain - 1) / kGrain * kGrain, 0.0);
  RETURN_IF_ERROR(collective->AllReduceSum(
      torch::from_blob(values_.data(), {static_cast<int64_t>(values_.size())},
                       torch::kFloat64)));
  return CheckLayout();
}

absl::Status Agreement::CheckLayout() const {
  std::vector<int> others;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (values_[rank] != hash_) others.push_back(rank);
  }
  if (others.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the ranks do not agree on what to agree on: rank ",
      absl::StrJoin(others, ", "), " added other numbers than rank ", rank_,
      ", which added:\n", layout_,
      "All ranks must run the same build with the same configuration, and see "
      "environments that report the same metrics"));
}

double Agreement::Ranks::mean() const {
  return std::accumulate(begin(), end(), 0.0) / size();
}

double Agreement::Ranks::max() const {
  return *std::max_element(begin(), end());
}

}  // namespace flotilla
