#include "services/env/conformance/sentences.h"

#include <iterator>

namespace flotilla {
namespace {

struct Entry {
  const char* name;
  const char* text;
};

// In the order of the enumeration.
constexpr Entry kEntries[] = {
    {"get-spec", "GetSpec answers at once, with the welcome's specification"},
    {"lists-ids", "GetSpec lists every id that the server can make"},
    {"session", "GetSpec says who is playing, and how far they are"},
    {"protocol-version",
     "another protocol version is refused with FAILED_PRECONDITION"},
    {"unknown-id", "an unknown environment id is refused with NOT_FOUND"},
    {"num-envs", "hello.num_envs below 1 is refused with INVALID_ARGUMENT"},
    {"num-groups",
     "hello.num_groups that does not divide num_envs is refused with "
     "INVALID_ARGUMENT"},
    {"option-unknown",
     "an option that is not declared is refused with INVALID_ARGUMENT, if any "
     "is declared"},
    {"message-order",
     "hello comes first, start second, then actions; anything else is refused "
     "with INVALID_ARGUMENT"},
    {"hello-limit",
     "without a hello or a start within the server's limit a stream ends with "
     "DEADLINE_EXCEEDED"},
    {"welcome",
     "the welcome answers the hello, before anything else: version 1, "
     "same_step"},
    {"silent-until-start", "nothing comes between the welcome and the start"},
    {"leaves-sorted", "leaves are sorted by path (bytewise), each once"},
    {"leaf-shapes",
     "leaves have a dtype and dimensions of at least 1, and fit into messages"},
    {"leaf-values",
     "discrete leaves are integers of at least one value an element"},
    {"leaf-bounds", "bounds are numbers, low at most high, one or one each"},
    {"mask-path",
     "mask_path names a UINT8 observation leaf with a value for each value of "
     "the discrete action"},
    {"episode-metric", "episode_metric is sorted, each once"},
    {"options-sorted", "options are sorted by name, their defaults JSON"},
    {"spec-limits", "max_episode_steps and frame_stack are 0 or more"},
    {"agents",
     "agents is 0 or more and divides a group's rows; other num_envs are "
     "refused with INVALID_ARGUMENT"},
    {"reset",
     "each group's reset batch comes unasked, with seq 0, and ends "
     "nothing"},
    {"one-step", "exactly one step comes for each actions, and none without"},
    {"in-time", "every answer comes within the timeout"},
    {"seq", "seq is 0 for the reset, then counts the group's steps"},
    {"groups", "groups are 0 to num_groups - 1, and advance independently"},
    {"rows-over-all",
     "group g holds rows [g * R, (g + 1) * R): in other groups, each row plays "
     "the same"},
    {"payload", "observations are inline where no memory is shared"},
    {"observation-sizes", "an observation has [R, ...] values for each leaf"},
    {"observation-values",
     "observations are finite, within bounds, discrete ones below num_values"},
    {"reward", "reward is float32 [R], finite"},
    {"flags", "terminated and truncated are uint8 [R], 0 or 1"},
    {"mask", "masks are 0 or 1 and allow at least one value of every element"},
    {"active",
     "active is empty or uint8 [R], 0 or 1, 0 for an agent that is gone, and 1 "
     "for one alone"},
    {"final-row", "final_row lists the rows that ended, ascending"},
    {"final-sizes", "final_observation has [F, ...] values for each leaf"},
    {"final-observation",
     "final_observation is what ended the episode, not what starts the next"},
    {"episode-start",
     "after an end, observation starts the next episode: by its seed alone, "
     "whatever was played before"},
    {"episode-end", "one EpisodeEnd comes for each game that ends"},
    {"episode-length",
     "EpisodeEnd.length is the game's steps, in which the agent was active"},
    {"episode-return",
     "EpisodeEnd.raw_return is the game's rewards, unclipped"},
    {"episode-metrics", "every EpisodeEnd has all of episode_metric"},
    {"agent-ends",
     "an agent's episode ends once at most in its environment's, which ends "
     "when all have; others_play_on says whether it did"},
    {"step-limit",
     "an episode of max_episode_steps steps ends, and is truncated only then"},
    {"limit-option",
     "options.max_episode_steps is the limit, and the welcome says so"},
    {"row-errors",
     "errors name a row once, in a line, with all slots of its environment, "
     "and end no episode of it"},
    {"deterministic", "the same hello and actions give the same steps"},
    {"seeds", "seed, worker_id and incarnation are part of every seed"},
    {"action-size",
     "actions of a wrong size are refused with INVALID_ARGUMENT, naming the "
     "leaf, what came and what was wanted"},
    {"action-leaves",
     "actions with too many or few leaves are refused with INVALID_ARGUMENT"},
    {"action-seq", "actions for another seq are refused with INVALID_ARGUMENT"},
    {"action-group",
     "actions for a group that is none are refused with INVALID_ARGUMENT"},
    {"action-range",
     "actions out of range are refused with INVALID_ARGUMENT, or the row is in "
     "error"},
    {"action-idle", "what a slot that is not active is sent is ignored"},
    {"shared-memory",
     "through the region come the same observations as inline, the rest beside "
     "in the message"},
    {"shared-slot", "a step names its group's slot of the shared region"},
    {"shared-region",
     "a region that does not fit is refused with INVALID_ARGUMENT"},
    {"ring", "through the rings come the same steps as in messages"},
    {"second-player",
     "another learner is refused with RESOURCE_EXHAUSTED, naming the one that "
     "plays, who plays on"},
    {"takeover",
     "a newer incarnation takes over; the older one's stream ends with "
     "ABORTED"},
    {"half-close", "a stream ends with OK after the learner half-closes"},
    {"cancel", "a cancelled stream leaves the server to the next learner"},
    {"shutdown", "when the server shuts down, streams end with UNAVAILABLE"},
};
static_assert(std::size(kEntries) == kSentenceCount);

}  // namespace

const char* SentenceName(Sentence sentence) {
  return kEntries[static_cast<int>(sentence)].name;
}

const char* SentenceText(Sentence sentence) {
  return kEntries[static_cast<int>(sentence)].text;
}

}  // namespace flotilla
