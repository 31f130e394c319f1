#ifndef FLOTILLA_SERVICES_BASE_HOST_NAME_H_
#define FLOTILLA_SERVICES_BASE_HOST_NAME_H_

#include <string>

namespace flotilla {

// What this host calls itself; "localhost" where it cannot say.
std::string HostName();

// "HOST:PORT": an IPv6 address goes into brackets.
std::string HostAndPort(const std::string& host, const std::string& port);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_HOST_NAME_H_
