package surface

// MaxManagementBody is the most bytes of a request that calls no model.
const MaxManagementBody = 1 << 20

type managementError struct {
	Error managementErrorObject `json:"error"`
}

type managementErrorObject struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`

	RetryAfterSecs int `json:"retry_after_secs,omitempty"`
}

// ManagementErrors returns the error format of the management API, which is below /api.
func ManagementErrors() *Errors {
	return &Errors{Object: func(e Error) any {
		return managementError{managementErrorObject{e.Code, e.Message, e.Param, e.RetryAfter}}
	}}
}
