// Boost.JSON is header-only here: this is the one file that holds its code.
#include <boost/json/src.hpp>
