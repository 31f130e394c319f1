#include "services/coordinator/metrics_page.h"

#include <google/protobuf/text_format.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flotilla {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Status Parse(const char* text) {
  v1::Status status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &status));
  return status;
}

TEST(MetricsPageTest, ARun) {
  const std::string page = MetricsPage(Parse(R"pb(
    run_id: "r"
    version: "1"
    epoch: "e"
    state: ACTIVE
    update: 61
    global_step: 250000
    change { number: 1 update: 3 }
    change { number: 2 update: 4 refused: "no" }
    change { number: 3 }
    evaluation { round: 2 update: 60 mean_return: 401.25 }
    learner {
      rank: 1
      id: "learner/0/1"
      host: "n1"
      state: "suspect"
      phase: STEPPING
      phase_seconds: 3.5
      env_worker { id: "a" state: "playing" }
      env_worker { id: "b" state: "playing" }
      env_worker { id: "c" state: "dead" }
    }
    learner { rank: -1 id: "learner/1/0" host: "n2" state: "joining" }
  )pb"));
  EXPECT_THAT(page, Not(HasSubstr("flotilla_mean_return")));
  for (
      const char* line : {
          "# TYPE flotilla_env_steps_total counter\n"
          "flotilla_env_steps_total 250000\n",
          "flotilla_info{run=\"r\",version=\"1\",epoch=\"e\"} 1\n",
          "flotilla_generation_state{state=\"ACTIVE\"} 1\n",
          "flotilla_generation_state{state=\"FENCED\"} 0\n",
          "flotilla_changes_total 1\n",
          "flotilla_changes_refused_total 1\n",
          "flotilla_evaluation_mean_return 401.25\n",
          "flotilla_learner_up{learner=\"learner/0/1\",rank=\"1\",host=\"n1\"} "
          "0\n",
          "flotilla_learner_up{learner=\"learner/1/"
          "0\",rank=\"-1\",host=\"n2\"} "
          "1\n",
          "flotilla_learner_phase_seconds{learner=\"learner/0/1\",rank=\"1\","
          "host=\"n1\",phase=\"STEPPING\"} 3.5\n",
          "flotilla_env_workers{learner=\"learner/0/1\",state=\"playing\"} 2\n",
          "flotilla_env_workers{learner=\"learner/0/1\",state=\"dead\"} 1\n",
      }) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(MetricsPageTest, NobodysWordsMakeALineOfTheirOwn) {
  const std::string page =
      MetricsPage(Parse(R"pb(run_id: "a\"} 1\nflotilla_evil 1\\")pb"));
  EXPECT_THAT(page, HasSubstr("run=\"a\\\"} 1\\nflotilla_evil 1\\\\\","));
  EXPECT_THAT(page, Not(HasSubstr("\nflotilla_evil")));
}

}  // namespace
}  // namespace flotilla
