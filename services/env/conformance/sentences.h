#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_SENTENCES_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_SENTENCES_H_

namespace flotilla {

// What proto/flotilla/v1/env.proto says of a server and a client can see: one
// value for each sentence, in the order in which they are reported.
enum class Sentence {
  kGetSpec,
  kListsIds,
  kSession,
  kProtocolVersion,
  kUnknownId,
  kNumEnvs,
  kNumGroups,
  kOptionUnknown,
  kMessageOrder,
  kHelloLimit,
  kWelcome,
  kSilentUntilStart,
  kLeavesSorted,
  kLeafShapes,
  kLeafValues,
  kLeafBounds,
  kMaskPath,
  kEpisodeMetric,
  kOptionsSorted,
  kSpecLimits,
  kAgents,
  kReset,
  kOneStep,
  kInTime,
  kSeq,
  kGroups,
  kRowsOverAll,
  kPayload,
  kObservationSizes,
  kObservationValues,
  kReward,
  kFlags,
  kMask,
  kActive,
  kFinalRow,
  kFinalSizes,
  kFinalObservation,
  kEpisodeStart,
  kEpisodeEnd,
  kEpisodeLength,
  kEpisodeReturn,
  kEpisodeMetrics,
  kAgentEnds,
  kStepLimit,
  kLimitOption,
  kRowErrors,
  kDeterministic,
  kSeeds,
  kActionSize,
  kActionLeaves,
  kActionSeq,
  kActionGroup,
  kActionRange,
  kActionIdle,
  kSharedMemory,
  kSharedSlot,
  kSharedRegion,
  kRing,
  kSecondPlayer,
  kTakeover,
  kHalfClose,
  kCancel,
  kShutdown,
  kCount
};

inline constexpr int kSentenceCount = static_cast<int>(Sentence::kCount);

// Its name in reports ("seq") and what it says.
const char* SentenceName(Sentence sentence);
const char* SentenceText(Sentence sentence);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_SENTENCES_H_
