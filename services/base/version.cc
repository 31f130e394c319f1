#include "services/base/version.h"

namespace flotilla {

std::string Version() { return FLOTILLA_VERSION; }

}  // namespace flotilla
