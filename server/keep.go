package server

import (
	"context"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/client"
)

// WebhookPath is what calls about one webhook have in common.
type WebhookPath struct {
	ID int64 `path:"id" minimum:"1" doc:"number of the webhook"`
}

// keepCalls are those about who hears of jobs, and how long jobs are kept.
func (a *api) keepCalls() {
	huma.Register(a, a.operation("webhooks", "GET", "/webhooks", "list the webhooks", everywhere(admin)),
		func(ctx context.Context, _ *struct{}) (*answer[[]client.Webhook], error) {
			all, err := a.Webhooks(ctx)
			return answered(filled(all), err)
		})
	post := a.operation("add-webhook", "POST", "/webhooks", "let an address hear of jobs; the answer has the secret, this once", everywhere(admin))
	post.DefaultStatus = 201
	huma.Register(a, post,
		func(ctx context.Context, in *struct{ Body client.Webhook }) (*answer[client.Webhook], error) {
			return answered(a.AddWebhook(ctx, in.Body))
		})
	huma.Register(a, a.operation("remove-webhook", "DELETE", "/webhooks/{id}", "remove a webhook", everywhere(admin)),
		func(ctx context.Context, in *WebhookPath) (*struct{}, error) {
			return nil, fault(a.RemoveWebhook(ctx, in.ID))
		})
	huma.Register(a, a.operation("test-webhook", "POST", "/webhooks/{id}/test", "send a webhook a ping now", everywhere(admin)),
		func(ctx context.Context, in *WebhookPath) (*answer[client.Answered], error) {
			return answered(a.TestWebhook(ctx, in.ID))
		})
	huma.Register(a, a.operation("retentions", "GET", "/retention", "how long jobs and what they left are kept", anybody()),
		func(ctx context.Context, _ *struct{}) (*answer[[]client.Retention], error) {
			all, err := a.Retentions(ctx)
			w := caller(ctx)
			all = slices.DeleteFunc(all, func(r client.Retention) bool {
				return r.Project != "" && !w.may(viewer, r.Project)
			})
			return answered(filled(all), err)
		})
	huma.Register(a, a.operation("set-retention", "PUT", "/retention", "say how long they are kept where a project does not say it itself", everywhere(admin)),
		func(ctx context.Context, in *struct{ Body client.Retention }) (*answer[client.Retention], error) {
			return answered(a.SetRetention(ctx, "", in.Body))
		})
	huma.Register(a, a.operation("set-project-retention", "PUT", "/projects/{name}/retention", "say how long a project's are kept; nothing but zeros lets what holds for all hold for it", inProject(admin)), func(ctx context.Context, in *struct {
		Name string `path:"name" minLength:"1" maxLength:"200"`
		Body client.Retention
	},
	) (*answer[client.Retention], error) {
		return answered(a.SetRetention(ctx, in.Name, in.Body))
	})
}
