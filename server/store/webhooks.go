package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"hora/server/client"
)

// NewWebhook adds a webhook, with its secret, and answers its number.
func NewWebhook(tx *sql.Tx, w *client.Webhook) (int64, error) {
	states, err := json.Marshal(w.States)
	if err != nil {
		return 0, err
	}
	r, err := tx.Exec("INSERT INTO webhooks (url, project, states, secret) VALUES (?, ?, ?, ?)", w.URL, w.Project, string(states), w.Secret)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

// DropWebhook forgets one, and what it has not heard; false where there is none.
func DropWebhook(tx *sql.Tx, id int64) (bool, error) {
	r, err := tx.Exec("DELETE FROM webhooks WHERE id = ?", id)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// Webhooks lists the webhooks, with their secrets.
func (s *Store) Webhooks(ctx context.Context) (all []client.Webhook, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT id, url, project, states, secret, delivered, failed, (SELECT count(*) FROM deliveries WHERE webhook = webhooks.id) FROM webhooks ORDER BY id")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var w client.Webhook
			var states string
			var delivered int64
			if err := rows.Scan(
				&w.ID, &w.URL, &w.Project, &states, &w.Secret, &delivered, &w.Failed, &w.Waiting,
			); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(states), &w.States); err != nil {
				return err
			}
			w.Delivered = at(delivered)
			all = append(all, w)
		}
		return rows.Err()
	})
	return all, err
}

// Delivery is what one webhook is yet to hear.
type Delivery struct {
	ID, Webhook int64
	At, Due     time.Time
	Tries       int
	Body        string
}

// AddDelivery lets a webhook hear something. One that was removed meanwhile hears nothing.
func AddDelivery(tx *sql.Tx, webhook int64, now time.Time, body []byte) error {
	_, err := tx.Exec("INSERT INTO deliveries (webhook, at, due, body) SELECT id, ?, ?, ? FROM webhooks WHERE id = ?", now.UnixNano(), now.UnixNano(), string(body), webhook)
	return err
}

// Deliveries lists what a webhook is to hear next, the first due first.
func (s *Store) Deliveries(ctx context.Context, webhook int64, most int) (all []Delivery, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT id, at, due, tries, body FROM deliveries WHERE webhook = ? ORDER BY due, id LIMIT ?", webhook, most)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			d := Delivery{Webhook: webhook}
			var when, due int64
			if err := rows.Scan(&d.ID, &when, &due, &d.Tries, &d.Body); err != nil {
				return err
			}
			d.At, d.Due = at(when), at(due)
			all = append(all, d)
		}
		return rows.Err()
	})
	return all, err
}

// Delivered notes that a webhook has heard something.
func Delivered(tx *sql.Tx, d *Delivery, now time.Time) error {
	if _, err := tx.Exec("DELETE FROM deliveries WHERE id = ?", d.ID); err != nil {
		return err
	}
	_, err := tx.Exec("UPDATE webhooks SET delivered = ?, failed = '' WHERE id = ?", now.UnixNano(), d.Webhook)
	return err
}

// Undelivered notes that it has not, and when it is tried again; never with a zero time.
func Undelivered(tx *sql.Tx, d *Delivery, why string, again time.Time) (err error) {
	if again.IsZero() {
		_, err = tx.Exec("DELETE FROM deliveries WHERE id = ?", d.ID)
	} else {
		_, err = tx.Exec("UPDATE deliveries SET due = ?, tries = tries + 1 WHERE id = ?", again.UnixNano(), d.ID)
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE webhooks SET failed = ? WHERE id = ?", why, d.Webhook)
	return err
}
