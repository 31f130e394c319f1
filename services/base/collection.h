#ifndef FLOTILLA_SERVICES_BASE_COLLECTION_H_
#define FLOTILLA_SERVICES_BASE_COLLECTION_H_

namespace flotilla {

// When rollouts are collected.
enum class Collection {
  kWhenAsked,    // while the learner waits, with the policy it trains: no lag
  kOneAhead,     // while it learns from the one before: one update of lag
  kFreeRunning,  // all the time, through a queue: IMPALA
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_COLLECTION_H_
