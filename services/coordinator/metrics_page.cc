#include "services/coordinator/metrics_page.h"

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "services/base/member_state.h"

namespace flotilla {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string LabelText(const Labels& labels) {
  if (labels.empty()) return "";
  std::string text = "{";
  for (const auto& [name, value] : labels) {
    absl::StrAppend(&text, text.size() == 1 ? "" : ",", name, "=\"",
                    absl::StrReplaceAll(
                        value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
                    "\"");
  }
  return text + "}";
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return absl::StrFormat("%.17g", value);
}

// One metric: its title, then its samples.
class Family {
 public:
  Family(const char* name, const char* type, const char* help,
         std::string* page)
      : name_(absl::StrCat("flotilla_", name)), page_(page) {
    absl::StrAppend(page_, "# HELP ", name_, " ", help, "\n# TYPE ", name_, " ",
                    type, "\n");
  }
  void Add(const Labels& labels, double value) {
    absl::StrAppend(page_, name_, LabelText(labels), " ", NumberText(value),
                    "\n");
  }

 private:
  const std::string name_;
  std::string* const page_;
};

class Page {
 public:
  void Gauge(const char* name, const char* help, double value) {
    Family(name, "gauge", help, &text).Add({}, value);
  }
  void Counter(const char* name, const char* help, int64_t value) {
    Family(name, "counter", help, &text).Add({}, static_cast<double>(value));
  }

  std::string text;
};

Labels LabelsOf(const v1::LearnerStatus& learner) {
  return {{"learner", learner.id()},
          {"rank", absl::StrCat(learner.rank())},
          {"host", learner.host()}};
}

// `value` of each learner.
template <typename Value>
void OfLearners(const v1::Status& status, const char* name, const char* type,
                const char* help, Value value, std::string* page) {
  Family family(name, type, help, page);
  for (const v1::LearnerStatus& learner : status.learner()) {
    family.Add(LabelsOf(learner), static_cast<double>(value(learner)));
  }
}

void AddRun(const v1::Status& s, Page* page) {
  Family("info", "gauge", "The run that this coordinator serves.", &page->text)
      .Add(
          {{"run", s.run_id()}, {"version", s.version()}, {"epoch", s.epoch()}},
          1);
  page->Gauge("uptime_seconds", "Since this coordinator began.",
              s.uptime_seconds());
  Family state("generation_state", "gauge",
               "1 for the state that the newest generation is in.",
               &page->text);
  for (int i = v1::GATHERING; i <= v1::CLOSED; ++i) {
    const auto each = static_cast<v1::GenerationState>(i);
    state.Add({{"state", v1::GenerationState_Name(each)}}, s.state() == each);
  }
  page->Gauge("generation",
              "The newest generation's number: grows when learners are lost or "
              "join.",
              static_cast<double>(s.generation()));
  page->Gauge("world_size", "Learners of the newest generation.",
              s.world_size());
  page->Gauge("learners_min", "Fewest learners of a generation.",
              s.min_learners());
  page->Gauge("learners_max", "Most learners of a generation.",
              s.max_learners());
  page->Gauge("stopping", "1 once the run was told to stop.", s.stop());
  page->Gauge("started_over", "1 if the run began anew at step 0.",
              !s.started_over().empty());
  page->Gauge("waits", "1 while everybody waits for somebody.",
              !s.waiting_for().empty());
}

void AddProgress(const v1::Status& s, Page* page) {
  page->Counter("env_steps_total", "Environment steps of all learners.",
                s.global_step());
  page->Counter("updates_total", "Committed updates.", s.update());
  page->Gauge("steps_per_second", "Environment steps of all learners a second.",
              s.steps_per_second());
  // 0 is what there is before the first episode has ended, too.
  if (s.mean_return() != 0) {
    page->Gauge("mean_return",
                "Mean return of the newest training episodes "
                "(metrics.episode_window).",
                s.mean_return());
  }
  page->Counter("learner_restarts_total", "Learners that were replaced.",
                s.learner_restarts());
  page->Counter("env_worker_restarts_total", "Env workers that were replaced.",
                s.env_worker_restarts());
  page->Counter("failed_rows_total",
                "Steps and resets of environments that failed.",
                s.failed_rows());
  int64_t made = 0, refused = 0;
  for (const v1::Change& change : s.change()) {
    if (!change.refused().empty()) {
      ++refused;
    } else if (change.update() > 0) {
      ++made;
    }
  }
  page->Counter("changes_total", "What flotilla set changed in flight.", made);
  page->Counter("changes_refused_total", "What it did not.", refused);
  if (s.evaluation().round() == 0) return;
  const v1::Evaluation& e = s.evaluation();
  page->Counter("evaluations_total", "Evaluations of frozen policies.",
                e.round());
  page->Gauge("evaluation_mean_return", "Of the newest evaluation.",
              e.mean_return());
  page->Gauge("evaluation_update", "Whose policy that was.",
              static_cast<double>(e.update()));
}

void AddLearners(const v1::Status& s, std::string* page) {
  OfLearners(
      s, "learner_up", "gauge", "1 while a learner is alive and is heard of.",
      [](const auto& l) {
        return l.state() == Word(LearnerState::kAlive) ||
               l.state() == Word(LearnerState::kJoining);
      },
      page);
  Family phase("learner_phase_seconds", "gauge",
               "How long a learner has been in the phase it is in.", page);
  for (const v1::LearnerStatus& learner : s.learner()) {
    Labels labels = LabelsOf(learner);
    labels.push_back({"phase", v1::Phase_Name(learner.phase())});
    phase.Add(labels, learner.phase_seconds());
  }
  OfLearners(
      s, "learner_updates_total", "counter",
      "Updates that a learner has committed.",
      [](const auto& l) { return l.update(); }, page);
  OfLearners(
      s, "learner_steps_per_second", "gauge",
      "Environment steps of a learner a second.",
      [](const auto& l) { return l.steps_per_second(); }, page);
  OfLearners(
      s, "learner_heartbeat_age_seconds", "gauge",
      "Since a learner was last heard of.",
      [](const auto& l) { return l.last_heartbeat_seconds(); }, page);
  OfLearners(
      s, "learner_trouble", "gauge",
      "1 while something goes wrong that flotilla status says.",
      [](const auto& l) { return !l.trouble().empty(); }, page);
  OfLearners(
      s, "learner_failed_rows_total", "counter",
      "Steps and resets of a learner's environments that failed.",
      [](const auto& l) { return l.failed_rows(); }, page);
}

// How many are in each state: all of them, so that no series comes and goes.
template <typename Servers>
std::map<std::string, int> CountStates(const Servers& servers) {
  std::map<std::string, int> count;
  for (const EnvServerState state :
       {EnvServerState::kPlaying, EnvServerState::kIdle,
        EnvServerState::kRestarting, EnvServerState::kWaiting,
        EnvServerState::kDead}) {
    count[Word(state)] = 0;
  }
  for (const v1::EnvServerStatus& server : servers) {
    const auto found = count.find(server.state());
    if (found != count.end()) ++found->second;
  }
  return count;
}

void AddWorkers(const v1::Status& s, std::string* page) {
  Family workers("env_workers", "gauge",
                 "Env workers of a learner, by what they do.", page);
  for (const v1::LearnerStatus& learner : s.learner()) {
    for (const auto& [state, count] : CountStates(learner.env_worker())) {
      workers.Add({{"learner", learner.id()}, {"state", state}}, count);
    }
  }
  Family servers("env_servers", "gauge",
                 "Env servers that have registered, by what they do.", page);
  for (const auto& [state, count] : CountStates(s.env_server())) {
    servers.Add({{"state", state}}, count);
  }
}

}  // namespace

std::string MetricsPage(const v1::Status& status) {
  Page page;
  AddRun(status, &page);
  AddProgress(status, &page);
  AddLearners(status, &page.text);
  AddWorkers(status, &page.text);
  return page.text;
}

}  // namespace flotilla
