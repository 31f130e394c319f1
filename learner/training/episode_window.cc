#include "learner/training/episode_window.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "learner/torch.h"

namespace flotilla {

EpisodeWindow::EpisodeWindow(int64_t size, int num_metrics)
    : rows_(torch::zeros({1 + size, 2 + num_metrics}, torch::kFloat64)) {}

int64_t EpisodeWindow::episodes() const {
  return static_cast<int64_t>(*Row(0));
}

void EpisodeWindow::Add(const std::vector<CollectStats::Episode>& finished,
                        Agreement* agreement) {
  const int64_t world = agreement->world_size();
  share_ = (size() + world - 1) / world;
  const int64_t mine =
      std::min<int64_t>(share_, static_cast<int64_t>(finished.size()));
  counts_ = agreement->AddPerRank("finished_episodes", mine);
  // Each rank fills rows of its own; the others add zeros.
  std::vector<double> rows(world * share_ * columns(), 0.0);
  double* at = rows.data() + agreement->rank() * share_ * columns();
  for (auto e = finished.end() - mine; e != finished.end(); ++e) {
    at[0] = e->raw_return;
    at[1] = e->length;
    std::copy(e->metrics.begin(), e->metrics.end(), at + 2);
    at += columns();
  }
  episodes_ = agreement->AddSums("episodes", rows);
}

void EpisodeWindow::Take(const Agreement& agreement) {
  const std::span<const double> all = agreement[episodes_];
  std::vector<double> fresh;
  for (int rank = 0; rank < agreement.world_size(); ++rank) {
    const auto count = static_cast<int64_t>(agreement[counts_][rank]);
    const double* from = all.data() + rank * share_ * columns();
    fresh.insert(fresh.end(), from, from + count * columns());
  }
  Append(fresh.data(), static_cast<int64_t>(fresh.size()) / columns());
}

void EpisodeWindow::Append(const double* fresh, int64_t count) {
  const int64_t added = std::min(count, size());
  const int64_t kept = std::min(episodes(), size() - added);
  const size_t row_bytes = columns() * sizeof(double);
  std::memmove(Row(1), Row(1 + episodes() - kept), kept * row_bytes);
  std::memcpy(Row(1 + kept), fresh + (count - added) * columns(),
              added * row_bytes);
  *Row(0) = static_cast<double>(kept + added);
}

std::vector<double> EpisodeWindow::Means() const {
  const int64_t count = episodes();
  if (count == 0) return {};
  std::vector<double> means(columns(), 0.0);
  for (int64_t i = 1; i <= count; ++i) {
    for (int64_t c = 0; c < columns(); ++c) means[c] += Row(i)[c];
  }
  for (double& mean : means) mean /= static_cast<double>(count);
  return means;
}

absl::Status EpisodeWindow::Load(const torch::Tensor& saved) {
  const bool a_window = saved.dim() == 2 && saved.size(0) >= 1 &&
                        saved.size(1) >= 2 &&
                        saved.scalar_type() == torch::kFloat64;
  const double stated = a_window ? saved[0][0].item<double>() : -1;
  if (!a_window || !(stated >= 0 && stated < saved.size(0))) {
    return absl::DataLossError(
        absl::StrCat("\"episode_window\" is no window of episodes: shape ",
                     c10::str(saved.sizes())));
  }
  if (saved.size(1) != columns()) {
    LOG(WARNING) << "the checkpoint's newest episodes have "
                 << saved.size(1) - 2 << " metrics of the environment's own, "
                 << "and this environment tells " << columns() - 2
                 << ": means over them begin anew";
    rows_.zero_();
    return absl::OkStatus();
  }
  const torch::Tensor rows = saved.contiguous();
  const double* from = Host<double>(rows);
  rows_.zero_();
  Append(from + columns(), static_cast<int64_t>(stated));
  return absl::OkStatus();
}

}  // namespace flotilla
