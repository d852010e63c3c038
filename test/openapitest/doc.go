// Package openapitest compares requests and replies with the description of the API,
// httpapi/v1/openapi.json: routes, parameters, bodies, statuses and problem codes. Only tests
// import it, from any package; it imports no package of Signalbox.
//
//   - check.go: Record and Check, for one request and its reply
//   - description.go: the description, its routes, and values compared with its schemas
//   - surface.go: what clients rely on, and what breaks them
package openapitest
