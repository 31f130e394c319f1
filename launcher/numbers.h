#ifndef FLOTILLA_LAUNCHER_NUMBERS_H_
#define FLOTILLA_LAUNCHER_NUMBERS_H_

#include <cstdint>
#include <string>

namespace flotilla {

// Numbers as people read them.

// "1,234,567"
std::string WithCommas(int64_t number);

// "950", "12.3k", "4.56M"
std::string Brief(double number);

// "4s", "1m05s", "2h03m", "3d04h"
std::string BriefSeconds(double seconds);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_NUMBERS_H_
